"""`doit watch`, with fake steps: which saves begin a turn, what interrupts one, and what is left when it ends."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.incremental.conftest import Project, hear_interrupts, wait_for
from tests.support.screen import read_all
from tests.support.watched import Watched

pytestmark = pytest.mark.incremental


def watch(project: Project, *arguments: str, before: Sequence[str] = (), **environment: str) -> Watched:
    return Watched(project.popen("watch", *arguments, before=before, **environment))


@pytest.fixture
def source(project: Project) -> Path:
    """The input of a step in the server of onnx, which is that of a kernel."""
    project.step("compile:a", "upper", "native/a/kernel.h", "build/a.so")
    project.step("data:a", "copy", "build/a.so", "build/a.pb", server="onnx")
    project.write("ops/a/spec.py", "")
    return project.write("native/a/kernel.h", "one")


@pytest.fixture
def watched(project: Project, source: Path) -> Iterator[Watched]:
    made = watch(project)
    made.await_verdicts(1)
    yield made
    made.end(signal.SIGKILL)


def by_another_file(path: Path, text: str) -> None:
    (path.parent / "kernel.h.new").write_text(text)
    (path.parent / "kernel.h.new").rename(path)


def as_vim(path: Path, text: str) -> None:
    """A probe for permissions, a swap file, and the old file kept as a backup until the new one is written."""
    (path.parent / "4913").write_text("")
    (path.parent / "4913").unlink()
    (path.parent / ".kernel.h.swp").write_text(text)
    path.rename(path.parent / "kernel.h~")
    path.write_text(text)
    (path.parent / "kernel.h~").unlink()


def deleted_and_back(path: Path, text: str) -> None:
    path.unlink()
    time.sleep(0.05)
    path.write_text(text)


def emptied_and_written(path: Path, text: str) -> None:
    path.write_text("")
    time.sleep(0.05)
    path.write_text(text)


def as_git_checkout(path: Path, text: str) -> None:
    for number in range(200):
        other = path.parent.parent / f"b{number % 7}/file{number}.h"
        other.parent.mkdir(exist_ok=True)
        other.write_text(text)
    path.unlink()
    path.write_text(text)


def test_each_way_to_save_gives_one_turn(watched: Watched, project: Project, source: Path) -> None:
    assert project.ran() == ["a.so", "a.pb"]
    ways: list[Callable[[Path, str], object]]
    ways = [Path.write_text, by_another_file, as_vim, deleted_and_back, emptied_and_written, as_git_checkout]
    for number in range(300):
        text, before = f"text {number}", len(watched.saved())
        ways[0](source, text)
        wait_for(lambda: watched.idle() and project.read("build/a.pb") == text.upper())  # noqa: B023 - called at once
        time.sleep(0.3)  # a second turn would begin
        turns, ran = len(watched.saved()) - before, project.ran()
        # A busy machine stops this process, or the one that watches, in the middle of a save, which then is two saves.
        if turns == 1:
            assert ran == ["a.so", "a.pb"]
            ways.pop(0)
        if not ways:
            return
    raise AssertionError(f"no save of {ways[0]} gave one turn: {watched.text}")


def test_a_new_operator_and_an_input_elsewhere_are_seen(watched: Watched, project: Project) -> None:
    project.step("compile:b", "copy", "third_party/b.h", "build/b.so")
    project.write("third_party/b.h", "one")
    project._write_steps()
    project.write("ops/b/spec.py", "")
    watched.await_verdicts(2)
    assert "ops/b/spec.py" in watched.saved()[0] and project.read("build/b.so") == "ONE"
    project.write("third_party/b.h", "two")
    watched.await_verdicts(3)
    assert watched.saved()[1:] == ["third_party/b.h"] and project.read("build/b.so") == "TWO"


def test_turns_share_servers_and_leave_the_folder_to_others(watched: Watched, project: Project, source: Path) -> None:
    (server,) = servers(project)
    for name in (".kernel.h.swp", "kernel.h~", "#kernel.h#", ".#kernel.h"):
        (source.parent / name).write_text("two")
    project.write("ops/a/__pycache__/spec.pyc", "")
    project.write("notes.txt", "two")
    assert "all up to date" in project.doit().stdout
    assert watched.saved() == [], "what is no source begins no turn"
    source.write_text("two")
    watched.await_verdicts(2)
    assert servers(project) == [server]
    assert "all up to date" in project.doit().stdout and project.doit("forget").returncode == 0
    os.kill(server, signal.SIGKILL)
    source.write_text("three")
    watched.await_verdicts(3)
    assert "OK in" in watched.text.rpartition("saved")[2] and servers(project) not in ([], [server])
    assert watched.end() == 130 and project.processes() == []
    assert "interrupted" not in watched.text and "Traceback" not in watched.text


def test_a_turn_waits_for_another_doit(project: Project, source: Path) -> None:
    project.step("compile:b", "slow", "b.txt", "build/b.so")
    project.write("b.txt", "one")
    watched = watch(project, "data:a")
    watched.await_verdicts(1)
    other = project.start("compile:b")
    source.write_text("two")
    wait_for(lambda: "waiting for another run in " in watched.text)
    assert f"process {other.pid} (" in watched.text and watched.verdicts() == 1
    project.write("go", "")
    watched.await_verdicts(2)
    assert other.communicate() and other.returncode == 0 and project.read("build/a.pb") == "TWO"
    assert watched.end() == 130


def test_a_save_during_a_turn_begins_it_anew(project: Project, source: Path) -> None:
    project.step("verify:a", "slow", "native/a/kernel.h", "build/a.txt", server="onnx")
    watched = watch(project)
    before = project.slow_step()
    source.write_text("two")
    wait_for(lambda: project.read("slow.pid") not in ("", str(before)))
    wait_for(lambda: not Path(f"/proc/{before}").exists())
    project.write("go", "")
    watched.await_verdicts(1)
    assert project.read("build/a.txt") == "TWO" and watched.verdicts() == 1
    assert "interrupted" not in watched.text and "Traceback" not in watched.text
    assert watched.end() == 130 and project.doit().stdout.endswith("all up to date\n")


@pytest.mark.parametrize(
    ("number", "server"),
    [(signal.SIGINT, "onnx"), (signal.SIGTERM, None), (signal.SIGHUP, "onnx"), (signal.SIGKILL, "onnx")],
)
def test_a_signal_ends_all_at_once(project: Project, source: Path, number: int, server: str | None) -> None:
    project.step("verify:a", "spawn", "native/a/kernel.h", "build/a.txt", server=server)
    watched = watch(project, "-n", "2")
    project.slow_step()
    killed = number == signal.SIGKILL
    assert watched.end(number) == (-9 if killed else 128 + number)  # pytest ends a test before the step: 1000 s
    wait_for(lambda: project.processes() == [])
    assert killed or ("interrupted; what had finished is kept" in watched.text and "Traceback" not in watched.text)
    project.steps.pop()
    assert project.doit().returncode == 0, "the lock is free"


def test_under_nohup_it_outlives_its_terminal(project: Project, source: Path) -> None:
    watched = watch(project, before=("nohup",))
    watched.await_verdicts(1)
    watched.process.send_signal(signal.SIGHUP)
    source.write_text("two")
    watched.await_verdicts(2)
    assert watched.end() == 130 and project.read("build/a.pb") == "TWO"


@pytest.mark.parametrize("how", ["Ctrl-C", "closed"])
def test_the_terminal_ends_all(project: Project, source: Path, how: str) -> None:
    project.step("verify:a", "spawn", "native/a/kernel.h", "build/a.txt", server="onnx")
    project._write_steps()
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-m", "doit", "watch"],
        cwd=project.root, env=project._environment({"TERM": "xterm-256color"}),
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=hear_interrupts,
    )  # fmt: skip
    os.close(theirs)
    project.slow_step()
    if how == "Ctrl-C":
        os.write(ours, b"\x03")
        assert process.wait() == 130
        assert "interrupted; what had finished is kept" in read_all(ours)
    else:
        os.close(ours)
        assert process.wait() == 128 + signal.SIGHUP
    wait_for(lambda: project.processes() == [])


def test_events_for_programs(project: Project, source: Path) -> None:
    process = project.popen("watch", "-r", "jsonl", stderr=subprocess.PIPE)
    watched = Watched(process)
    wait_for(lambda: watched.text.count('"finish"') == 1)
    source.write_text("two")
    wait_for(lambda: watched.text.count('"finish"') == 2)
    assert watched.end() == 130
    assert process.stderr
    with process.stderr as errors:  # of a turn that has finished, whose process has not ended yet, too
        assert errors.read() in ("", "\ninterrupted; what had finished is kept\n")
    events = [json.loads(line) for line in watched.text.splitlines()]
    assert [event["files"] for event in events if event["event"] == "saved"] == [["native/a/kernel.h"]]
    ended = [event["step"] for event in events if event["event"] == "end" and event["outcome"] == "succeeded"]
    assert ended == ["compile:a", "data:a"] * 2


def test_the_first_cause_is_shown_at_once(project: Project, source: Path) -> None:
    project.step("cases:b", "say", "native/a/kernel.h", "build/b.json")
    project.step("register:a", "slow", "native/a/kernel.h", "build/a.txt")
    project.step("verify:c", "say", "native/a/kernel.h", "build/c.txt")
    watched = watch(project)
    first = "FAILED cases:b\n  the kernel differs at (0, 17): expected 0.1243, got 0.1250\n"
    wait_for(lambda: (project.root / "slow.pid").is_file() and first in watched.text)
    assert watched.verdicts() == 0
    project.write("go", "")
    watched.await_verdicts(1)
    assert watched.end() == 130 and watched.text.count("FAILED cases:b") == 1
    rest = watched.text.partition(first)[2].splitlines()
    assert rest[0] == "  cases:b failed" and rest[1].startswith("  Replay: python -m opmatrix say native/a/kernel.h ")
    assert rest[2].startswith("FAILED verify:c: the kernel differs at ") and rest[3].startswith("5 steps in "), rest


def test_settings_that_are_half_written(watched: Watched, project: Project) -> None:
    settings = project.root / "pyproject.toml"
    before = settings.read_text()
    settings.write_text(f"{before}\n[tool.opmatrix.half\n")
    wait_for(lambda: "pyproject.toml: Expected ']' at the end of a table declaration" in watched.text)
    settings.write_text(before)
    watched.await_verdicts(2)
    assert "Traceback" not in watched.text and watched.last_turn()[-1].endswith("all up to date")


def test_a_project_that_is_removed_ends_it(watched: Watched, project: Project) -> None:
    moved = project.root.rename(project.root.with_name("moved"))  # at once: a turn may begin in what is left of it
    assert watched.process.wait() == 1
    watched.end()
    assert f"doit watch: the project's folder '{project.root}' is gone" in watched.text
    assert "Traceback" not in watched.text
    moved.rename(project.root)


def servers(project: Project) -> list[int]:
    """Return the processes of the project's servers, without the steps that they run."""
    listed = subprocess.run(["pgrep", "-f", "opmatrix.engine.server_main"], capture_output=True, text=True).stdout
    here = [int(process) for process in listed.split()]
    return [p for p in here if Path(f"/proc/{p}/cwd").exists() and Path(f"/proc/{p}/cwd").resolve() == project.root]


@pytest.mark.parametrize("what", ["dodo.py", "package"])
def test_what_the_process_is_made_of_starts_it_anew(project: Project, source: Path, what: str) -> None:
    folder = project.root / "packages"
    folder.mkdir()
    watched = watch(project, PYTHONPATH=f"{project._environment({})['PYTHONPATH']}:{folder}")
    watched.await_verdicts(1)
    before, process = servers(project), watched.process.pid
    if what == "package":
        (folder / "later-1.0.dist-info").mkdir()
        (folder / "later-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    else:
        dodo = project.root / "dodo.py"
        dodo.rename(project.root / "away")
        wait_for(lambda: "dodo.py is being replaced; opmatrix waits until that is done\n" in watched.text)
        dodo.write_text(f"{project.read('away')}\n# edited\n")
    watched.await_verdicts(2)
    name = "the environment" if what == "package" else "dodo.py"
    assert f"{name} has changed: opmatrix starts anew\n" in watched.text
    wait_for(lambda: len(servers(project)) == 1)
    assert watched.process.pid == process and servers(project) != before
    assert watched.end() == 130 and project.processes() == []


def test_what_does_not_begin(project: Project, source: Path) -> None:
    """A wrong name, and watchfiles that are not installed."""
    done = project.doit("watch", "dta")
    assert done.returncode == 2 and "no task, operator, command or output 'dta'; did you mean 'data'?" in done.stderr
    project.write("sitecustomize.py", "import sys\nsys.modules['watchfiles'] = None\n")
    done = project.doit("watch", PYTHONPATH=f"{project.root}:{project._environment({})['PYTHONPATH']}")
    assert done.returncode == 5
    assert "doit watch needs the package watchfiles, which is not installed. Run: " in done.stderr
    assert "-m pip install 'opmatrix[watch]'" in done.stderr and project.processes() == []


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare of util-linux")
@pytest.mark.parametrize("limit", ["watches", "instances"])
def test_without_inotify_it_polls(project: Project, source: Path, limit: str) -> None:
    command = f'echo 1 > /proc/sys/user/max_inotify_{limit} && exec "$@"'
    if subprocess.run(["unshare", "-Ur", "sh", "-c", command, "-", "true"]).returncode:
        pytest.skip("no user namespaces")
    watched = watch(project, before=["unshare", "-Ur", "sh", "-c", command, "-"])
    watched.await_verdicts(1)
    wait_for(lambda: "no inotify watch is left" in watched.text)
    source.write_text("two")
    watched.await_verdicts(2)
    assert watched.text.count("no inotify watch is left") == 1
    assert watched.end() == 130 and project.processes() == []
