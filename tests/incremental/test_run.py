"""One run: which run may start, how failing steps end, what is printed, what is left."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from opmatrix.project.cells import Cell
from tests.incremental.conftest import Project, alive, wait_for

pytestmark = pytest.mark.incremental

DIFFERS = "the kernel differs at (0, 17): expected 0.1243, got 0.1250"
CELL = "torch2.13-dynamo-opset18-ort1.31"


def cells(project: Project, **commands: str) -> None:
    """Add a verify step per command, and a report of all."""
    for name, command in commands.items():
        verdict = f"build/{name}.json"
        project.step(f"verify:{name}-custom@{CELL}", command, "a.txt", verdict, verdict=verdict, server="onnx")
    project.report("report", written="build/report.json")["command"].append("build/report.json")


@pytest.mark.parametrize("server", [None, "onnx"])
def test_steps_that_die_do_not_stop_the_others(project: Project, server: str | None) -> None:
    cells(project, a="throw", b="abort", c="segfault", d="hang", e="verify")
    for step in project.steps[:-1]:
        step["server"] = server
    project.steps[3]["seconds"] = 3
    done = project.doit()
    assert done.returncode == 1
    assert project.json("build/e.json") == {"outcome": "verified"}
    expected = {"a": "out of cheese", "b": "SIGABRT", "c": "SIGSEGV", "d": "did not end within 3 s"}
    for name, text in expected.items():
        found = project.json(f"build/{name}.json")
        assert (found["op"], found["lowering"], found["outcome"]) == (name, "custom", "failed")
        assert str(Cell(**found["cell"])) == CELL
        assert text in found["detail"]
        assert name == "a" or "last words" in found["detail"]
        assert f"Replay: python -m opmatrix {project.steps['abcd'.index(name)]['command'][0]} a.txt" in found["detail"]
        assert f"verify:{name}-custom@{CELL} FAILED" in done.stdout and text in done.stdout
        assert f"\nverify:{name}-custom@{CELL}: " not in done.stdout, "the report has the details"
        assert f"\nFAILED verify:{name}-custom@{CELL}: " in done.stdout
    assert "TABLE of 5 cells, 4 bad" in done.stdout
    assert "6 steps in" in done.stdout and "2 run, 4 failed" in done.stdout, "the report did its work"
    assert project.processes() == []


def test_a_failing_step_prints_its_own_message(project: Project) -> None:
    """Details come first, and the causes last."""
    cells(project, a="throw")
    project.step("compile:a", "say", "a.txt", "build/a.so", server="onnx")
    text = project.doit().stdout
    details, said, *causes, last = re.split(r"TABLE|\nFAILED |\n(?=\d+ steps)", text)
    replay = "  Replay: python -m opmatrix say a.txt build/a.so"
    assert f"compile:a: failed\n  {DIFFERS}\n  Log: build/log/compile/a.log\n{replay}\n" in details
    assert "Task" not in details and "Traceback" not in details
    assert "out of cheese" in said and len(causes) == 2
    assert causes[0].splitlines() == ["compile:a", f"  {DIFFERS}", "  compile:a failed", replay]
    assert "RuntimeError: out of cheese" in causes[1] and " 1 run, 2 failed" in last
    project.write("run", "")  # as in a checkout, where PATH may have no `python`
    assert f"{replay.replace('python', './run python')}\n" in project.doit().stdout


def test_output_of_steps_is_shown_on_request(project: Project) -> None:
    cells(project, a="verify")
    assert project.doit("-v", "2", "verify").stdout.count("TABLE") == 0
    project.step("data:a", "leave", "a.txt", "build/a.pb")
    project.steps[-1]["command"] = ["report", "build/a.json", "build/a.pb"]
    assert project.doit("data:a").stdout.count("TABLE") == 0
    assert project.doit("-a", "-v", "2", "data:a").stdout.count("TABLE of 1 cells, 0 bad") == 1


@pytest.mark.parametrize(
    ("command", "source", "message"),
    [
        ("nothing", "a.txt", "ended well, but did not write"),
        ("copy", "b.txt", "data:a: its input b.txt does not exist, and no step writes it"),
    ],
)
def test_a_step_without_its_output_or_input_fails(project: Project, command: str, source: str, message: str) -> None:
    project.step("data:a", command, source, "build/a.pb")
    done = project.doit()
    assert done.returncode == 1 and message in done.stdout


def test_blocked_steps_have_a_verdict_and_the_report_is_written(project: Project) -> None:
    cells(project, a="verify", b="verify")
    project.doit()
    assert project.json("build/a.json") == {"outcome": "verified"}
    project.steps[0] |= {"after": ["compile:a"], "reads": ["a.txt", "build/a.so"]}
    project.step("compile:a", "say", "a.txt", "build/a.so")
    done = project.doit()
    found = project.json("build/a.json")
    assert found["outcome"] == "failed", "the verdict of the earlier run survived"
    assert found["detail"].startswith(f"not run: compile:a failed: {DIFFERS}")
    assert "TABLE of 2 cells, 1 bad" in done.stdout
    assert "compile:a failed, 1 step did not run\n" in done.stdout
    assert done.returncode == 1


def test_the_verdict_of_a_failing_step_stays(project: Project) -> None:
    """That of an earlier run does not."""
    cells(project, a="verify")
    project.write("a.txt", "wrong")
    done = project.doit()
    assert project.json("build/a.json") == {"outcome": "mismatched"}
    assert "TABLE of 1 cells, 1 bad" in done.stdout and done.returncode == 1
    again = project.doit("verify")  # without the report, the step prints it itself
    assert "2 of 64 elements differ" in again.stdout and again.returncode == 1
    for command, outcome in (("abort", "failed"), ("verify", "mismatched"), ("throw", "failed")):
        project.set_command(command, of=0)
        project.doit()
        assert project.json("build/a.json")["outcome"] == outcome


def test_processes_that_a_step_leaves_are_killed(project: Project) -> None:
    project.step("data:a", "leave", "a.txt", "build/a.pb")
    assert project.doit().returncode == 0
    wait_for(lambda: not alive(project.read("left.pid")))


# At 71b51ad8: SIGTERM and SIGHUP ended in 130 too.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "two"])
def test_a_killed_run_keeps_finished_steps_and_leaves_no_process(
    project: Project, number: signal.Signals, options: tuple[str, ...]
) -> None:
    project.step("codegen:a", "copy", "a.txt", "build/a.g")
    project.step("compile:a", "spawn", "build/a.g", "build/a.so")
    process = project.start(*options)
    process.send_signal(number)
    output, _ = process.communicate()
    wait_for(lambda: project.processes() == [] and not alive(project.read("left.pid")))
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert number == signal.SIGKILL or "interrupted; what had finished is kept" in output
    assert "Traceback" not in output
    project.ran()
    project.set_command("copy")
    assert project.doit().returncode == 0
    assert project.ran() == ["a.so"]


def test_a_run_under_nohup_outlives_its_terminal(project: Project) -> None:
    project.step("data:a", "slow", "a.txt", "build/a.pb")
    process = project.start(before=("nohup",))
    process.send_signal(signal.SIGHUP)
    project.write("go", "")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert (project.root / "build/a.pb").exists()


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "two"])
def test_a_signal_in_a_callback_of_a_fork_ends_the_run(project: Project, options: tuple[str, ...]) -> None:
    """Python drops what such a callback raises, and logging has one."""
    project.write(
        "dodo.py",
        "import os, signal\n"
        "def ask_to_end():\n"
        "    if callable(signal.getsignal(signal.SIGTERM)):\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "os.register_at_fork(after_in_parent=ask_to_end)\n" + project.read("dodo.py"),
    )
    project.step("data:a", "nap", "a.txt", "build/a.pb")
    done = project.doit(*options)
    assert (done.returncode, done.stderr) == (143, "interrupted; what had finished is kept\n")
    wait_for(lambda: project.processes() == [])


@pytest.mark.parametrize(
    ("killed", "message"),
    [("step", "compile:a: died of SIGKILL after"), ("server", "the onnx server ended while the step ran")],
)
def test_a_killed_process_is_a_failed_step(project: Project, killed: str, message: str) -> None:
    project.step("compile:a", "hang", "a.txt", "build/a.so", server="onnx")
    project.step("compile:b", "copy", "a.txt", "build/b.so", server="onnx")
    process = project.start()
    step = project.slow_step()
    server = int(Path(f"/proc/{step}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(step if killed == "step" else server, signal.SIGKILL)
    output, _ = process.communicate()
    assert message in output and process.returncode == 1
    assert (project.root / "build/b.so").exists(), "a server that was killed was not started again"
    assert not alive(step)


def test_a_server_that_cannot_start_is_one_sentence(project: Project) -> None:
    project.step("data:a", "copy", "a.txt", "build/a.pb", server="nonsense")
    project.step("data:b", "copy", "a.txt", "build/b.pb", server="onnx")
    project.write("onnx/__init__.py", "raise ImportError('libcheese.so: cannot open shared object file')")
    done = project.doit()
    sentence = "the onnx server did not start: ImportError: libcheese.so: cannot open shared object file. Log: "
    assert sentence in done.stdout and "Traceback" not in done.stdout
    assert "Traceback" in project.read("build/log/server/onnx.log")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "two"])
def test_a_server_that_still_imports_ends_with_the_run(
    project: Project, number: signal.Signals, options: tuple[str, ...]
) -> None:
    project.step("data:b", "copy", "a.txt", "build/b.pb", server="onnx")
    text = "import os, pathlib, time; pathlib.Path('slow.pid').write_text(str(os.getpid())); time.sleep(1000)"
    project.write("onnx/__init__.py", text)
    process = project.start(*options)
    process.send_signal(number)
    process.communicate()
    wait_for(lambda: project.processes() == [])


def test_a_server_with_threads_is_refused(project: Project) -> None:
    project.write(
        "onnx/__init__.py",
        "import threading; threading.Thread(target=threading.Event().wait).start()\n"
        "from unittest.mock import MagicMock\n"
        "def __getattr__(name): return MagicMock()\n",  # with any import
    )
    project.step("data:b", "copy", "a.txt", "build/b.pb", server="onnx")
    assert "its imports started threads" in project.doit().stdout
    # A thread that never ends must not keep the refused server alive either.
    wait_for(lambda: project.processes() == [])


def test_the_second_of_two_runs_names_the_first(project: Project) -> None:
    """Also one of other steps, and a command that removes outputs."""
    project.step("compile:a", "slow", "a.txt", "build/a.so")
    project.step("compile:b", "copy", "a.txt", "build/b.so")
    first = project.start("compile:a")
    for arguments in ((), ("compile:b",), ("clean",)):
        second = project.doit(*arguments)
        assert second.returncode == 3
        assert second.stderr.startswith(f"another run is at work in {project.root}/build: process {first.pid} (")
        assert second.stderr.endswith(f"). Wait for it, or stop it with: kill {first.pid}\n")
    assert project.doit("list").returncode == 0
    project.write("go", "")
    first.communicate()
    assert first.returncode == 0
    assert project.doit("compile:a").stdout == "1 step, all up to date\n"
    assert project.doit("compile:b").returncode == 0


def test_steps_run_at_the_same_time(project: Project) -> None:
    """The first fails unless the second ends while it runs."""
    project.step("compile:a", "slow", "a.txt", "build/a.so")
    project.step("compile:b", "copy", "a.txt", "go", server="onnx")
    done = project.doit("-n", "2")
    assert done.returncode == 0 and sorted(project.ran()) == ["a.so", "go"], done.stdout


def test_a_sub_folder_has_no_second_state(project: Project) -> None:
    project.step("codegen:a", "copy", "a.txt", "build/a.g")
    project.write("ops/a/spec.py", "")
    assert project.doit("-k", "opsets=all", folder="ops/a").returncode == 0
    assert project.ran() == ["a.g"] and project.doit().stdout == "1 step, all up to date\n"
    there = sorted(p.name for p in project.root.iterdir())
    assert project.doit("-k", folder="ops/a").stdout == "1 step, all up to date\n"
    assert project.doit("list", "-k", folder="ops/a").stdout.startswith("codegen")
    assert project.doit(folder="ops/a", DOIT_SEEK_FILE="1").stdout == "1 step, all up to date\n"
    assert project.doit(folder="ops/a").returncode == 3
    assert sorted(p.name for p in project.root.iterdir()) == there
    assert [p.name for p in (project.root / "ops/a").iterdir()] == ["spec.py"]
