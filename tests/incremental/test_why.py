"""`doit why` and `doit list --status`: what they predict, compared with the run that follows."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.incremental.conftest import Project
from tests.support.projects import Project as RealProject

pytestmark = pytest.mark.incremental


def why(project: Project, *tasks: str) -> dict[str, str]:
    """Return the line of each step that would run."""
    done = project.doit("why", *tasks)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(line.split(": ", 1) for line in done.stdout.splitlines()[:-1])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def status(project: Project) -> dict[str, str]:
    lines = project.doit("list", "--all", "--status", "-q").stdout.splitlines()
    return {name: letter for letter, name in (line.split() for line in lines) if ":" in name}


def edited(project: Project) -> Path:
    return project.write("a.txt", "bye")


def failed(project: Project) -> None:
    edited(project)
    project.set_command("say", of=0)
    project.doit()
    project.ran()


def ignored(project: Project) -> None:
    edited(project)
    project.doit("ignore", "codegen:a")


EDIT = f"a.txt {digest('hello # one')} -> {digest('bye')}"
AFTER = "after codegen:a, if build/a.g changes"
# By name: a change of the chain, and why each of its steps would run, with its letter in a list.
REASONS: dict[str, tuple[Callable[[Project], object], str, str]] = {
    "an edit": (edited, f"R {EDIT}", f"W {AFTER}"),
    "a change of a step and of its input": (
        lambda p: (edited(p), p.steps[1].update(config="-O3")), f"R {EDIT}", "R config nothing -> -O3",
    ),
    "a deleted output": (lambda p: (p.root / "build/a.g").unlink(), "R build/a.g is missing", f"W {AFTER}"),
    "a fresh checkout": (lambda p: shutil.rmtree(p.root / "build"), "R never ran", "R never ran"),
    "a step that failed": (
        failed, f"R {EDIT}; the command upper -> say; did not succeed when it last ran, or was forgotten", f"W {AFTER}",
    ),
    "a missing input": (
        lambda p: (p.root / "a.txt").unlink(),
        "E cannot run: its input a.txt does not exist, and no step writes it", f"W {AFTER}",
    ),
    "an ignored step": (ignored, "I left out: `doit ignore` excludes it", f"W {AFTER}"),
}  # fmt: skip


@pytest.mark.parametrize("change", REASONS)
def test_the_reason_of_each_step(chain: Project, change: str) -> None:
    edit, *reasons = REASONS[change]
    edit(chain)
    letters = status(chain)
    found = [f"{letters[task]} {reason}" for task, reason in why(chain).items()]
    assert (found, [*letters], chain.ran()) == (reasons, ["codegen:a", "compile:a"], []), "why runs nothing"


def test_the_last_line(chain: Project) -> None:
    assert chain.doit("why").stdout == "2 steps, all up to date\n"
    edited(chain)
    assert chain.doit("why").stdout.endswith("\n2 steps: 1 would run, 1 would run if what they read changes\n")


def test_a_step_that_never_ran(chain: Project) -> None:
    chain.step("data:a", "copy", "a.txt", "build/a.pb")
    assert why(chain) == {"data:a": "never ran"}
    chain.set_command("say")
    chain.doit()
    assert why(chain) == {"data:a": "did not succeed yet"}


def test_a_removed_operator(chain: Project) -> None:
    shutil.rmtree(chain.root / "ops/a")
    chain.steps = [{"group": "report", "name": "", "command": ["nothing"]}]
    assert "a is no longer in ops/: what was built for it would be removed" in chain.doit("why").stdout
    assert (chain.root / "build/a.so").exists()


def test_a_selection_with_its_dependencies(chain: Project) -> None:
    edited(chain)
    chain.step("data:b", "copy", "a.txt", "build/b.pb")
    assert list(why(chain, "compile:a")) == ["codegen:a", "compile:a"]
    assert list(why(chain, "data:*")) == ["data:b"]


CHANGES: dict[str, Callable[[Project, random.Random], object]] = {
    "edit": lambda p, r: p.write("a.txt", f"{r.random()} # one"),
    "comment": lambda p, r: p.write("a.txt", f"hello # {r.random()}"),
    "second source": lambda p, r: p.write("b.txt", str(r.random())),
    "delete": lambda p, r: Path(p.root, r.choice(["build/a.g", "build/a.so", "build/b.pb"])).unlink(missing_ok=True),
    "tamper": lambda p, r: p.write(r.choice(["build/a.g", "build/a.so", "build/b.pb"]), str(r.random())),
    "flag": lambda p, r: r.choice(p.steps).update(config=str(r.random())),
    "input more": lambda p, r: p.steps[3]["reads"].append("c.txt"),
    "forget": lambda p, r: p.doit("forget", r.choice(["codegen:a", "compile:a"])),
    "database": lambda p, r: (p.root / "build/state.db").unlink(),
}


def test_why_list_and_run_agree(project: Project) -> None:
    """After two or three random changes: a step that "runs" runs, one that "waits" may run, and no other step runs."""
    dice = random.Random(4)
    for name in "abc":
        project.write(f"{name}.txt", f"hello # {name}")
    project.step("codegen:a", "upper", "a.txt", "build/a.g")
    project.step("compile:a", "copy", "build/a.g", "build/a.so")
    project.step("data:b", "upper", "b.txt", "build/b.pb")
    project.step("verify:a", "copy", "build/a.so", "build/a.json", reads=["build/a.so", "build/b.pb"])
    kinds = list(CHANGES)
    for number in range(12):
        for kind in {kinds[number % len(kinds)], *dice.sample(kinds, 2)} if number else ():
            CHANGES[kind](project, dice)
        before = _content(project)
        said, letters = why(project), status(project)
        assert (project.ran(), _content(project)) == ([], before), "nothing runs, nothing is written"
        by_letter = {letter: {name for name in letters if letters[name] == letter} for letter in "URW"}
        assert letters.keys() - by_letter["U"] == said.keys()
        assert by_letter["W"] == {name for name, line in said.items() if line.startswith("after ")}
        assert project.doit().returncode == 0
        tasks = {Path(step["writes"][0]).name: f"{step['group']}:{step['name']}" for step in project.steps}
        ran = {tasks[target] for target in project.ran()}
        assert by_letter["R"] <= ran <= set(said), (number, said, ran)


def _content(project: Project) -> list[object]:
    state = project.root / "build/state.db"
    if not state.exists():
        return []
    database = sqlite3.connect(state)
    found = [*database.execute("select * from step order by name"), *database.execute("select * from note")]
    database.close()
    return found


def test_a_changed_field_of_a_declaration_is_named(tmp_path: Path) -> None:
    real = RealProject.copy(tmp_path)
    shutil.rmtree(real.root / "ops/group_norm/published")  # which would refuse the edit
    assert real.doit("codegen").returncode == 0
    real.replace("ops/group_norm/spec.py", "default=1e-5", "default=1e-6")
    output = real.doit("why", "codegen").stdout.splitlines()
    assert output[0] == "codegen:group_norm: spec.py: attributes[epsilon].default 1e-05 -> 1e-06"
    assert output[1] == "1 step: 1 would run"
