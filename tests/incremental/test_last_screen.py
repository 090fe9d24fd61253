"""On a terminal of 80x24, the last screen of a failed run has the cause, its file and line, and one command."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.incremental.conftest import REPOSITORY, Project, processes, start_doit, wait_for
from tests.incremental.real import KERNEL, RealProject
from tests.support import screen
from tests.support.projects import Project as RealOperators
from tests.support.projects import edited
from tests.support.watched import Watched

pytestmark = pytest.mark.incremental
DOIT = (sys.executable, "-m", "doit")
LOWERING, SPEC = "ops/group_norm/lowering.py", "ops/group_norm/spec.py"


def line_of(path: Path, text: str) -> int:
    return path.read_text().partition(text)[0].count("\n") + 1


@pytest.mark.parametrize(
    ("path", "old", "new", "at", "sentence", "command"),
    [
        pytest.param(
            KERNEL, "  double square = 0;", "  double square = 0", "  double lost = 0;",
            "expected", "python -m opmatrix compile group_norm", id="compile error",
        ),
        pytest.param(
            KERNEL, "(x - shift) * factor + bias", "(x - shift) * factor - bias", "void group_norm(",
            "elements differ", "python -m opmatrix register group_norm --part kernel --case seed", id="wrong kernel",
        ),
        pytest.param(
            LOWERING, "normal, factor), summand", "normal, summand), factor", "def decomposed(",
            "elements differ", "python -m opmatrix verify group_norm --lowering decomposed --cell "
            "torch2.13-legacy-opset18-ort1.31 --case seed", id="wrong lowering",
            marks=[pytest.mark.slow, pytest.mark.deep],
        ),
        pytest.param(
            SPEC, 'SameAs(input="x")', 'SameAs(input="z")', 'SameAs(input="z")',
            "found 'z', allowed: x, num_groups, scale, bias",
            "python -m opmatrix check-declaration group_norm", id="broken spec",
        ),
    ],
)  # fmt: skip
def test_the_last_screen_has_the_cause(
    real: RealProject, path: str, old: str, new: str, at: str, sentence: str, command: str
) -> None:
    with edited(real.root / path, old, new):
        seen = screen.run(DOIT, cwd=real.root, PYTHONPATH=str(real.root / "pipeline"))
        line = line_of(real.root / path, at)
    assert seen.code == 1
    assert f"\nFAILED {path}:{line}\n" in seen.last, seen.last
    assert sentence in " ".join(seen.last.split()), seen.last
    assert seen.last.count("FAILED ") == 1, "one cause"
    last = re.sub(r" \\\n +", " ", seen.text.split("\nFAILED ")[-1])  # as a shell takes it
    assert f"\n  Replay: {command}\n" in last, "it can be pasted"
    # Mostly 75 to 80: the search, which has limited time, finds one input or another.
    assert len([row for row in seen.lines if row]) < 100, "\n".join(seen.lines)


Stages = Callable[..., screen.Seen]


@pytest.fixture
def stages(project: Project) -> Stages:
    """Runs doit in a terminal."""

    def run(*arguments: str, **environment: str) -> screen.Seen:
        project._write_steps()
        return screen.run([*DOIT, *arguments], cwd=project.root, PYTHONPATH=str(REPOSITORY / "pipeline"), **environment)

    return run


def test_a_failure_is_shown_as_it_happens_and_equal_ones_are_counted(project: Project, stages: Stages) -> None:
    for n in range(3):
        project.step(f"data:a-custom@torch2.13-legacy-opset{n}", "say", "a.txt", f"build/{n}")
    seen = stages()
    before, summary = seen.text.split("\nFAILED ")
    assert before.count("FAILED\n  the kernel differs at (0, 17): expected 0.1243, got 0.1250\n") == 1
    assert before.count("FAILED") == 1, "the progress line counts the others"
    assert "\n  3 steps of data failed\n" in summary and summary.splitlines()[-1].endswith(": 3 failed")


def test_many_causes_are_less_than_a_screen(project: Project, stages: Stages) -> None:
    for n in range(30):
        project.step(f"data:{n}", "say", "a.txt", f"build/{n}", operator=f"op{n}")
    seen = stages()
    assert seen.last.count("FAILED data:") == 8 and "22 more causes in build/log\n" in seen.last


def test_annotations_in_github_actions(project: Project, stages: Stages) -> None:
    project.step("data:a", "say", "a.txt", "build/a")
    line = "::error title=data%3Aa failed::the kernel differs at (0, 17): expected 0.1243, got 0.1250%0AReplay: "
    assert line in stages(GITHUB_ACTIONS="true").text
    assert line in stages("--format", "github").text
    assert "::error" not in stages().text + stages("--format", "text", GITHUB_ACTIONS="true").text
    refused = stages("-r", "jsonl", "--format", "github")
    assert refused.code == 2 and "--format github needs the reporter 'progress', found 'jsonl'" in refused.text


def test_an_error_before_any_step_is_an_annotation_too(project: Project, stages: Stages) -> None:
    more = "\ndef task_mine():\n    return {'actions': ['true']}\n"
    project.write("dodo.py", project.read("dodo.py") + more)
    line = "::error file=dodo.py,line=1,title=doit cannot begin::found task 'mine', allowed: what opmatrix plans"
    for seen in (stages(GITHUB_ACTIONS="true"), stages("--format", "github"), stages("--format=github")):
        assert seen.code == 3 and line in seen.text, seen.text
    assert "::error" not in stages().text


def test_events_and_annotations_have_file_and_line_as_the_terminal_shows_them(project: Project, stages: Stages) -> None:
    project.write("ops/a/spec.py", "# a\nSPEC = None\n")
    project.step("data:a", "say", "a.txt", "build/a")
    assert "FAILED ops/a/spec.py:2" in stages().last
    assert '"file": "ops/a/spec.py", "line": 2}' in stages("-r", "jsonl").text
    seen = stages(GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(project.root.parent))  # where the repository is
    assert f"::error file={project.root.name}/ops/a/spec.py,line=2,title=" in seen.text


def test_a_brief_verdict(project: Project, stages: Stages) -> None:
    for n in (18, 20):
        name, record = f"verify:a-custom@torch2.13-dynamo-opset{n}-ort1.31", f"build/{n}.json"
        project.step(name, "verify", "a.txt", record, verdict=record)
    seen = stages("-r", "brief")
    assert seen.code == 0
    assert re.fullmatch(r"OK in [\d.]+ s: 2 cells verified; 2 steps ran", "\n".join(seen.lines)), seen.lines
    again = stages("-r", "brief").lines
    assert re.fullmatch(r"OK in [\d.]+ s: 2 cells verified; all up to date", "\n".join(again)), again
    for n in range(12):
        project.step(f"cases:a{n}", "say", "a.txt", f"build/a{n}.json", operator=f"op{n}")
    seen = stages("-r", "brief")
    rows = [row for row in seen.lines if row]
    assert seen.code == 1 and len(rows) <= 9, seen.text
    assert rows[0].startswith("FAILED cases:a0") and "expected 0.1243, got 0.1250" in rows[1]
    assert any(row.startswith("  Replay: python -m opmatrix say a.txt ") for row in rows)
    assert rows[-1].endswith(": 2 up to date, 12 failed; more: build/log")


@pytest.fixture
def watched(real: RealProject) -> Iterator[Watched]:
    real.passes()
    made = Watched(start_doit(real.root, "watch", "register:group_norm-kernel*"))
    made.await_verdicts(1)
    yield made
    made.end(signal.SIGKILL)


def test_watch_shows_the_verdict_of_each_save(real: RealProject, watched: Watched) -> None:
    """A wrong kernel, its correction, and opmatrix itself, first half written."""
    assert re.search(r"^OK in [\d.]+ s: all up to date$", watched.text, re.MULTILINE), watched.text
    with edited(real.root / KERNEL, "(x - shift) * factor + bias", "(x - shift) * factor - bias"):
        line = line_of(real.root / KERNEL, "void group_norm(")
        watched.await_verdicts(2)
    lines = watched.last_turn()
    assert len(lines) <= 10, watched.text
    assert lines[0].endswith(f" {KERNEL} saved") and lines[1] == f"FAILED {KERNEL}:{line}", watched.text
    assert "elements differ" in watched.text
    assert "  Replay: python -m opmatrix register group_norm --part kernel --case seed" in lines
    watched.await_verdicts(3)
    assert re.fullmatch(r"OK in [\d.]+ s: 2 steps ran", watched.last_turn()[-1]), watched.text
    with edited(real.root / "pipeline/opmatrix/basics/errors.py", "class UsageError(", "class UsageError(("):
        wait_for(lambda: "pipeline/opmatrix/basics/errors.py:" in watched.text)
        assert watched.text.count("; opmatrix waits until that is done\n") == 1
    watched.await_verdicts(4)
    assert "pipeline/opmatrix/basics/errors.py has changed: opmatrix starts anew\n" in watched.text
    assert watched.end() == 130 and processes(real.root) == []


def test_a_project_without_operators_says_what_to_do(tmp_path: Path) -> None:
    files = RealOperators.copy(tmp_path, operators=())
    seen = screen.run(DOIT, cwd=files.root)
    assert seen.code == 1
    why = "no operator in ops/ yet, so there is nothing to verify; `doit new` writes one"
    assert f"\nFAILED report\n  {why}\n" in seen.text.replace("\r", "")
