"""Commands that users can paste: with ./run in a checkout, quoted for the shell, and of stages that there are."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import opmatrix
from opmatrix.basics.errors import UsageError, missing
from opmatrix.basics.step_log import LOGGED
from opmatrix.basics.terminal import for_shell
from opmatrix.commands import stages
from opmatrix.commands.stages import STAGES
from opmatrix.engine.step_failure import StepFailed, replay_commands
from opmatrix.records.step import Step

TEXT = "Debug: python -m opmatrix compile a --debug && gdb --args python -m opmatrix verify a --debug"
PACKAGE = Path(opmatrix.__file__).parent


def test_commands_in_a_users_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert for_shell(TEXT) == TEXT
    assert for_shell("Run: doit compile:a") == "Run: doit compile:a"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_in_a_checkout(checkout: Path) -> None:
    debug = "Debug: ./run python -m opmatrix compile a --debug && ./run gdb --args python -m opmatrix verify a --debug"
    assert for_shell(TEXT) == debug
    assert for_shell(debug) == debug
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


def test_a_command_of_a_failed_step_is_quoted() -> None:
    step = Step(group="verify", name="a", command=("verify", "a", "--cell", "two words"), operator="a")
    (line,) = replay_commands(StepFailed(step, summary="failed"))
    assert shlex.split(line.removeprefix("Replay: "))[-1] == "two words"
