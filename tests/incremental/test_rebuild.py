"""What runs again, and what does not: each test is one way in which a build can be stale or wasteful."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.incremental.conftest import Project

pytestmark = pytest.mark.incremental


def one_input_less(project: Project) -> None:
    project.steps[0]["reads"].append(project.write("b.h", "").name)
    assert project.runs() == ["a.g"], "for one input more"
    project.steps[0]["reads"].pop()


# By name: a change of the chain, the targets of the steps that it runs, and what is then in build/a.so.
CHANGES: dict[str, tuple[Callable[[Project], object], list[str], str]] = {
    "nothing": (lambda p: None, [], "HELLO "),
    "an edit": (lambda p: p.write("a.txt", "bye # one"), ["a.g", "a.so"], "BYE "),
    "an edit with an equal output": (lambda p: p.write("a.txt", "hello # two"), ["a.g"], "HELLO "),
    "touch": (lambda p: os.utime(p.root / "a.txt", (0, 0)), [], "HELLO "),
    "an older time stamp": (lambda p: os.utime(p.write("a.txt", "bye"), (1, 1)), ["a.g", "a.so"], "BYE"),
    "another configuration": (lambda p: p.steps[0].update(config="-O3"), ["a.g"], "HELLO "),
    "another command": (lambda p: p.set_command("copy", of=0), ["a.g", "a.so"], "HELLO # ONE"),
    "one input less": (one_input_less, ["a.g"], "HELLO "),
    "a deleted output": (lambda p: (p.root / "build/a.so").unlink(), ["a.so"], "HELLO "),
    "an empty output": (lambda p: p.write("build/a.so", ""), ["a.so"], "HELLO "),
    "a truncated output": (lambda p: p.write("build/a.so", "HELL"), ["a.so"], "HELLO "),
    "an output by hand": (lambda p: p.write("build/a.so", "HELLO, by hand"), ["a.so"], "HELLO "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_runs(chain: Project, name: str) -> None:
    change, ran, result = CHANGES[name]
    change(chain)
    done = chain.doit()
    assert (done.returncode, done.stderr, chain.ran(), chain.read("build/a.so")) == (0, "", ran, result)
    assert chain.doit().stdout == "2 steps, all up to date\n"


def test_an_edit_that_keeps_size_and_time_stamp(chain: Project) -> None:
    path = chain.root / "a.txt"
    chain.doit()  # its fingerprint is trusted by now
    before = path.stat()
    path.write_text("HELL0 # one")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert chain.runs() == ["a.g", "a.so"]


def test_an_output_that_something_else_wrote_is_made_again(chain: Project) -> None:
    """By a step that keeps a file newer than its source, and with a state that has no record of the file."""
    chain.set_command("keep")
    assert chain.doit().returncode == 0
    for state in ("build/state.db", "ran"):
        (chain.root / state).unlink()
        chain.write("build/a.so", "a foreign library")
        assert chain.doit().returncode == 0
        assert chain.read("build/a.so") == "HELLO "


def test_an_output_that_the_step_itself_wrote_stays(chain: Project) -> None:
    """After an edit that does not change it, and after a failure: for ninja, a file written again is new."""
    chain.set_command("keep")
    assert chain.doit().returncode == 0
    before = (chain.root / "build/a.so").stat()
    for command, code in (("say", 1), ("keep", 0)):
        chain.set_command(command)
        assert chain.doit().returncode == code
    assert (chain.root / "build/a.so").stat() == before


def test_a_record_is_gone_while_its_step_runs(chain: Project) -> None:
    """A step that ends early must not leave the record of an earlier run as its result."""
    chain.step("register:a", "copy", "build/a.so", "build/register/a.json")
    assert chain.doit().returncode == 0 and (chain.root / "build/register/a.json").exists()
    chain.set_command("end")
    assert chain.doit().returncode == 1
    assert not (chain.root / "build/register/a.json").exists()


@pytest.mark.parametrize("command", ["end", "system_exit"])
def test_a_step_whose_code_ends_the_process_with_0_has_failed(chain: Project, command: str) -> None:
    chain.set_command(command)
    done = chain.doit()
    why = "ended with exit code 0 before it was done (code in it called exit; let that raise an error instead)"
    at = ", at case seed" if command == "end" else ""
    assert done.returncode == 1 and f"compile:a: {why}{at}\n" in done.stdout
    chain.ran()
    assert chain.doit().returncode == 1 and chain.ran() == ["a.so"]


@pytest.mark.parametrize("command", ["edit", "and_back"])
@pytest.mark.parametrize("fields", [{}, {"reads": [], "declared": ["a.txt"]}], ids=["input", "declaration"])
def test_an_input_edited_while_the_step_runs(project: Project, command: str, fields: dict[str, Any]) -> None:
    """Also one that is then as it was, and a declaration: the key of a step has it as of the time of planning."""
    project.step("codegen:a", command, "a.txt", "build/a.g", **fields)
    for output in ("HELLO", "EDITED MEANWHILE") if command == "edit" else ("FOR A MOMENT",) * 2:
        assert "a.txt was written while the step ran: it runs again next time" in project.doit().stdout
        assert (project.ran(), project.read("build/a.g")) == (["a.g"], output)
    project.set_command("copy")
    assert (project.runs(), project.read("build/a.g")) == (["a.g"], project.read("a.txt").upper())
    assert project.doit().stdout == "1 step, all up to date\n"


def test_a_failed_step_runs_again(chain: Project) -> None:
    """Its old output does not count, even when its input is again what the output was made from."""
    chain.write("a.txt", "bye")
    chain.set_command("say", of=0)
    for _ in range(2):
        assert chain.doit().returncode == 1 and chain.ran() == ["a.g"]
    chain.write("a.txt", "hello # one")
    chain.set_command("upper", of=0)
    assert chain.doit().returncode == 0 and chain.ran() == ["a.g"]


def test_an_output_that_a_step_no_longer_writes_is_removed(project: Project) -> None:
    made = project.step("data:a", "split", "a.txt", "build/d")
    for text in ("x y", "x"):
        project.write("a.txt", text)
        made["writes"] = [f"build/d/{name}" for name in text.split()]
        assert project.doit().returncode == 0
        assert sorted(p.name for p in (project.root / "build/d").iterdir()) == text.split()


def test_outputs_of_a_removed_operator_are_removed(chain: Project) -> None:
    """Those of an operator without steps stay before."""
    chain.write("ops/b/spec.py", "")
    chain.step("codegen:b", "copy", "a.txt", "build/generated/b/b.cc")
    chain.step("verify:b-custom@cell", "copy", "a.txt", "build/verify/b/custom/c.json")
    chain.write("build/compile/b/object.o", "")
    chain.doit()
    del chain.steps[2:]
    chain.doit()
    assert chain.read("build/generated/b/b.cc")
    shutil.rmtree(chain.root / "ops/b")
    done = chain.doit()
    assert "b is no longer in ops/: what was built for it is removed" in done.stdout
    assert not [p for p in (chain.root / "build").rglob("*") if p.name in ("b", "b.log", "b-custom@cell.log")]
    assert chain.read("build/a.so") and chain.read("build/log/codegen/a.log")


def test_outputs_of_a_step_that_is_not_planned_stay(chain: Project) -> None:
    step = chain.step("export:a-custom@opset18", "copy", "a.txt", "build/export/a/18")
    chain.doit()
    chain.steps.remove(step)
    chain.doit()
    chain.steps.append(step)
    assert chain.doit().stdout == "3 steps, all up to date\n"


def test_a_moved_project_stays_up_to_date(chain: Project, tmp_path: Path) -> None:
    moved = tmp_path / "with space and ü"
    moved.mkdir()
    for path in list(tmp_path.iterdir()):
        if path != moved:
            path.rename(moved / path.name)
    chain.root = moved
    assert chain.doit().stdout == "2 steps, all up to date\n"


def test_every_finished_step_is_in_the_state(chain: Project) -> None:
    state = sqlite3.connect(chain.root / "build/state.db")
    assert dict(state.execute("select name, key is not null from step")) == {"codegen:a": 1, "compile:a": 1}
    state.close()


def test_forget_and_always_execute(chain: Project) -> None:
    assert chain.doit("forget", "compile:a").returncode == 0
    assert chain.runs() == ["a.so"]
    assert chain.runs("-a", "codegen:a") == ["a.g"]
    assert chain.doit("forget").stdout == "forgetting all tasks\n"
    assert chain.runs() == ["a.g", "a.so"]


def test_an_edit_and_the_commands_that_run_nothing(chain: Project) -> None:
    """`reset-dep` of doit would accept the stale result."""
    chain.write("a.txt", "bye")
    assert chain.doit("reset-dep").returncode == 2
    output = chain.doit("info", "codegen:a").stdout
    assert "status     : run\n" in output and "\nlast took  : 0." in output
    assert chain.doit("info", "compile:a").returncode == 0
    chain.doit("ignore", "codegen:a")
    assert ": 2 ignored by `doit ignore`\n" in chain.doit().stdout
    assert chain.ran() == []
    chain.doit("forget", "codegen:a")
    assert chain.runs() == ["a.g", "a.so"]


def test_list_shows_groups_in_the_order_of_the_steps(chain: Project) -> None:
    flow = ["codegen", "compile", "data", "cases", "draw-inputs", "register", "export", "verify", "report"]
    groups = [*flow, "probe", "sanitize", "compat", "link-wheel", "dist"]  # internal steps with --all
    lines = chain.doit("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == groups
    assert all(len(line.split()) > 3 for line in lines)
    chain.write("build/a.so", "x")
    status = dict(line.split()[:2][::-1] for line in chain.doit("list", "--all", "-s").stdout.splitlines())
    assert (status["codegen:a"], status["compile:a"]) == ("U", "R")


def test_clean_names_what_it_removes(chain: Project) -> None:
    assert chain.doit("clean", "-n", "compile").stdout == "compile:a: would remove 2 files\n"
    assert (chain.root / "build/a.so").exists()
    assert chain.doit("clean", "compile").stdout == "compile:a: removed 2 files\n"
    assert not (chain.root / "build/a.so").exists() and (chain.root / "build/a.g").exists()
    assert "codegen:a: removed 2 files" in chain.doit("clean").stdout
    assert {p.name for p in (chain.root / "build").iterdir()} <= {"lock", "state.db", "state.db-wal", "state.db-shm"}
    assert chain.runs() == ["a.g", "a.so"]


def test_a_selection_by_pattern(chain: Project) -> None:
    chain.step("compile:b", "copy", "a.txt", "build/b.so")
    chain.step("data:b", "copy", "a.txt", "build/b.pb")
    assert chain.runs("comp*:b") == ["b.so"]
