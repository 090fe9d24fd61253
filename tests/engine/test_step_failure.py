"""What a failed step shows, and commands that users can paste: quoted for the shell, and with ./run in a checkout."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import opmatrix
from opmatrix.basics.errors import UsageError, missing
from opmatrix.basics.step_log import LOGGED
from opmatrix.basics.terminal import for_shell
from opmatrix.commands import stages
from opmatrix.commands.stages import STAGES
from opmatrix.engine.server_pool import Ending
from opmatrix.engine.step_failure import (
    StepBlocked,
    StepFailed,
    death_message,
    failure_of,
    leave_verdict,
    replay_commands,
)
from opmatrix.project.cells import Cell
from opmatrix.records import verdict
from opmatrix.records.step import Server, Step
from opmatrix.records.verdict import FailedStep, Verdict

CELL = "torch2.13-dynamo-opset18-ort1.31"


def ending(status: int, seconds: float, stopped: str) -> Ending:
    return Ending(status=status, seconds=seconds, cpu=0.0, stopped=stopped)


def step(tmp_path: Path, server: Server | None = "ort") -> Step:
    return Step(
        group="verify", name=f"my_op-custom@{CELL}", command=("verify", "my_op", "--cell", CELL), operator="my_op",
        lowering="custom", cell=Cell.parse(CELL), server=server, verdict=tmp_path / "verdict.json", seconds=2,
    )  # fmt: skip


def test_a_server_step_shows_its_last_lines_and_a_light_step_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("$ command\n" + "\n".join(f"line {i}" for i in range(100)) + "\n")
    tail = failure_of(step(tmp_path), ending(-11, 0.42, ""), log)
    assert tail.summary == "died of SIGSEGV after 0.4 s" and tail.died
    assert tail.output.splitlines() == [f"line {i}" for i in range(70, 100)]
    whole = failure_of(step(tmp_path, server=None), ending(6, 0.42, ""), log)
    assert whole.output.splitlines() == [f"line {i}" for i in range(100)] and not whole.died


def test_the_stack_of_python_is_in_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its frames are those of the framework that called the kernel; one of a reference in Python is a place to look."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    log.write_text(
        "$ command\nprinted by the kernel\nFatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f31 (most recent call first):\n"
        '  File "/lib/onnxruntime/session.py", line 395 in run\n'
        f'  File "{tmp_path}/ops/my_op/reference.py", line 7 in my_op\n'
        '  File "/lib/opmatrix/commands/stages.py", line 3 in main\n\n'
        "Extension modules: numpy._core._multiarray_umath, onnx.onnx_cpp2py_export (total: 2)\n"
    )
    failure = failure_of(step(tmp_path), ending(-11, 0.42, ""), log)
    assert failure.output.splitlines() == [
        "printed by the kernel",
        "",
        f'  File "{tmp_path}/ops/my_op/reference.py", line 7 in my_op',
    ]


def test_limits(tmp_path: Path) -> None:
    late = failure_of(step(tmp_path), ending(-6, 2.1, "time"), tmp_path / "none")
    assert (late.summary, late.output) == ("did not end within 2 s and was stopped", "") and "Debug" in late.detail
    large = failure_of(step(tmp_path), ending(-9, 2.1, "memory"), tmp_path / "none")
    assert large.summary == "took more than 8000 MB of memory and was stopped" and large.died


def test_a_crash_of_a_library_has_a_debug_command(tmp_path: Path) -> None:
    crash = failure_of(step(tmp_path), ending(-11, 0.4, ""), tmp_path / "none")
    assert crash.detail.splitlines() == [
        "died of SIGSEGV after 0.4 s",
        f"Replay: python -m opmatrix verify my_op --cell {CELL}",
        "Debug: python -m opmatrix compile my_op --debug && "
        f"gdb --args python -m opmatrix verify my_op --cell {CELL} --debug",
    ]
    assert "Debug" not in failure_of(step(tmp_path), ending(10, 2.1, ""), tmp_path / "none").detail


@pytest.mark.parametrize("number, name", [(11, "SIGSEGV"), (40, "signal 40")])
def test_a_death_names_its_signal(number: int, name: str) -> None:
    """Python has no name for most of the real-time signals."""
    message = death_message(ending(-number, 2.0, ""), seconds=300, megabytes=8000)
    assert message == f"died of {name} after 2.0 s"


def test_a_verdict_stays_unless_the_step_died_after_it(tmp_path: Path) -> None:
    """That of a death names operator, lowering and cell."""
    judged = Verdict(op="my_op", lowering="custom", cell=Cell.parse(CELL), outcome="mismatched")
    verdict.write(tmp_path / "verdict.json", judged)
    leave_verdict(step(tmp_path), StepFailed(step(tmp_path), summary="failed with exit code 10"))
    assert verdict.read(tmp_path / "verdict.json") == judged
    failed = StepFailed(step(tmp_path), summary="died of SIGABRT after 0.1 s", output="last words", died=True)
    leave_verdict(failed.step, failed)
    detail = "\n".join(["died of SIGABRT after 0.1 s", "last words", *replay_commands(failed)])
    assert verdict.read(tmp_path / "verdict.json") == replace(judged, outcome="failed", detail=detail)


def test_a_command_of_a_failed_step_is_quoted() -> None:
    failed = Step(group="verify", name="a", command=("verify", "a", "--cell", "two words"), operator="a")
    (line,) = replay_commands(StepFailed(failed, summary="failed"))
    assert shlex.split(line.removeprefix("Replay: "))[-1] == "two words"


def test_a_blocked_step_names_the_failed_step(tmp_path: Path) -> None:
    compiled = Step(group="compile", name="my_op", command=("compile", "my_op"))
    cause = StepFailed(compiled, summary="failed with exit code 6", output="kernel.h:3: error: expected ';'\nmore")
    leave_verdict(step(tmp_path), StepBlocked("verify", cause))
    found = verdict.read(tmp_path / "verdict.json")
    assert found.blocked_by == FailedStep(group="compile", name="my_op")
    assert found.detail == "not run: compile:my_op failed: kernel.h:3: error: expected ';'"


TEXT = "Debug: python -m opmatrix compile a --debug && gdb --args python -m opmatrix verify a --debug"
PACKAGE = Path(opmatrix.__file__).parent


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for command in (TEXT, "Run: doit compile:a"):
        assert for_shell(command) == command, "as in a user's project"
    (tmp_path / "run").touch()
    return tmp_path


def test_commands_in_a_checkout(checkout: Path) -> None:
    debug = "Debug: ./run python -m opmatrix compile a --debug && ./run gdb --args python -m opmatrix verify a --debug"
    assert for_shell(TEXT) == for_shell(debug) == debug
    assert for_shell("a is missing. Run: doit compile:a") == "a is missing. Run: ./run doit compile:a"
    assert for_shell(for_shell("Run: doit")) == "Run: ./run doit"


@pytest.mark.parametrize("logged", [False, True])
def test_the_message_of_a_stage_by_hand_has_the_command_of_the_checkout_and_a_log_has_not(
    logged: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: object) -> None:
        raise UsageError(missing("a.so", run="python -m opmatrix compile a"))

    monkeypatch.delenv(LOGGED, raising=False)
    if logged:
        monkeypatch.setenv(LOGGED, "1")
    monkeypatch.setattr(stages, "run_stage", fail)
    assert stages.main([]) == 2
    assert ("./run python" in capsys.readouterr().err) is not logged


def strings() -> Iterator[tuple[str, str]]:
    """Yield the strings of the package that are not docstrings, with ``{}`` for what is inserted, and their files."""
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
                yield path.name, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                yield path.name, node.value


STAGE = re.compile(r"python -m opmatrix ([a-z][a-z-]*)")


def test_each_command_in_a_message_is_one_of_a_stage() -> None:
    found = [(path, stage) for path, text in strings() for stage in STAGE.findall(text)]
    assert len(found) > 30
    assert [one for one in found if one[1] not in (*STAGES, "doctor")] == []


PATH = re.compile(r"\b(path|prefix|folder|root|file)s?\b")


def test_a_path_in_a_command_is_quoted() -> None:
    """A path of the user's may have blanks."""
    unquoted = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else ""
            inserted = (
                re.findall(r"\{([^{}]*)\}", text[text.find("python -m opmatrix ") :]) if STAGE.search(text) else []
            )
            unquoted += [f"{file.name}: {one}" for one in inserted if PATH.search(one) and "shlex." not in one]
    names = [one for one in unquoted if one.endswith(".name")]  # of an operator, from its folder
    assert [one for one in unquoted if one not in names] == []
