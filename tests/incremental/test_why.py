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
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines()[:-1])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def status(project: Project) -> dict[str, str]:
    lines = project.doit("list", "--all", "--status", "-q").stdout.splitlines()
    return {name: letter for letter, name in (line.split() for line in lines) if ":" in name}


def test_nothing_to_do(chain: Project) -> None:
    assert chain.doit("why").stdout == "2 steps, all up to date\n"


def test_a_step_that_never_ran(chain: Project) -> None:
    chain.step("data:a", "copy", "a.txt", "build/a.pb")
    assert why(chain) == {"data:a": "never ran"}
    chain.steps[-1]["command"][0] = "say"
    chain.doit()
    assert why(chain) == {"data:a": "did not succeed yet"}


def test_an_edit_and_its_dependent_steps(chain: Project) -> None:
    chain.write("a.txt", "bye")
    output = chain.doit("why").stdout.splitlines()
    assert output == [
        f"codegen:a: a.txt {digest('hello # one')} -> {digest('bye')}",
        "compile:a: after codegen:a, if build/a.g changes",
        "2 steps: 1 would run, 1 would run if what they read changes",
    ]
    assert status(chain) == {"codegen:a": "R", "compile:a": "W"}
    assert chain.ran() == [], "why runs nothing"


def test_a_change_of_a_step_and_of_its_input(chain: Project) -> None:
    chain.write("a.txt", "bye")
    chain.steps[1]["config"] = "-O3"
    assert why(chain)["compile:a"] == "config nothing -> -O3"


def test_a_deleted_output_in_the_middle(chain: Project) -> None:
    (chain.root / "build/a.g").unlink()
    assert why(chain) == {"codegen:a": "build/a.g is missing", "compile:a": "after codegen:a, if build/a.g changes"}
    chain.doit()
    assert chain.ran() == ["a.g"]


def test_a_fresh_checkout(chain: Project) -> None:
    shutil.rmtree(chain.root / "build")
    assert why(chain) == {"codegen:a": "never ran", "compile:a": "never ran"}
    assert status(chain) == {"codegen:a": "R", "compile:a": "R"}


def test_a_step_that_failed(chain: Project) -> None:
    chain.write("a.txt", "bye")
    chain.steps[0]["command"][0] = "say"
    chain.doit()
    edited = f"a.txt {digest('hello # one')} -> {digest('bye')}"
    again = "did not succeed when it last ran, or was forgotten"
    assert why(chain)["codegen:a"] == f"{edited}; the command upper -> say; {again}"


def test_a_missing_input(chain: Project) -> None:
    (chain.root / "a.txt").unlink()
    assert why(chain) == {
        "codegen:a": "cannot run: its input a.txt does not exist, and no step writes it",
        "compile:a": "after codegen:a, if build/a.g changes",
    }
    assert status(chain) == {"codegen:a": "E", "compile:a": "W"}


def test_an_ignored_step(chain: Project) -> None:
    chain.write("a.txt", "bye")
    chain.doit("ignore", "codegen:a")
    assert why(chain)["codegen:a"] == "left out: `doit ignore` excludes it"
    assert status(chain)["codegen:a"] == "I"


def test_a_removed_operator(chain: Project) -> None:
    shutil.rmtree(chain.root / "ops/a")
    chain.steps = [{"group": "report", "name": "", "command": ["nothing"]}]
    assert "a is no longer in ops/: what was built for it would be removed" in chain.doit("why").stdout
    assert (chain.root / "build/a.so").exists()


def test_a_selection_with_its_dependencies(chain: Project) -> None:
    chain.write("a.txt", "bye")
    chain.step("data:b", "copy", "a.txt", "build/b.pb")
    assert list(why(chain, "compile:a")) == ["codegen:a", "compile:a"]
    assert list(why(chain, "data:*")) == ["data:b"]
    assert "no task, operator, command or output 'datta'; did you mean 'data'?" in chain.doit("why", "datta").stderr


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
        assert {name for name, letter in letters.items() if letter != "U"} == set(said)
        assert {name for name, letter in letters.items() if letter == "W"} == {
            name for name, line in said.items() if line.startswith("after ")
        }
        assert project.doit().returncode == 0
        ran = {
            next(f"{s['group']}:{s['name']}" for s in project.steps if s["command"][2].endswith("/" + target))
            for target in project.ran()
        }
        assert {name for name, letter in letters.items() if letter == "R"} <= ran <= set(said), (number, said, ran)


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
