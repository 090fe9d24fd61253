"""What runs again, and what does not: each test is one way in which a build can be stale or wasteful."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.incremental.conftest import Project

pytestmark = pytest.mark.incremental


def test_nothing_to_do_runs_nothing(chain: Project) -> None:
    done = chain.doit()
    assert (done.stdout, done.stderr, done.returncode) == ("2 steps, all up to date\n", "", 0)
    assert chain.ran() == []


def test_an_edit_runs_all_dependent_steps(chain: Project) -> None:
    chain.write("a.txt", "bye # one")
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]
    assert chain.read("build/a.so") == "BYE "


def test_equal_output_runs_no_further_step(chain: Project) -> None:
    chain.write("a.txt", "hello # two")
    chain.doit()
    assert chain.ran() == ["a.g"]


def test_touch_runs_nothing(chain: Project) -> None:
    os.utime(chain.root / "a.txt", (0, 0))
    chain.doit()
    assert chain.ran() == []


def test_an_edit_that_keeps_size_and_time_stamp(chain: Project) -> None:
    path = chain.root / "a.txt"
    chain.doit()  # its fingerprint is trusted by now
    before = path.stat()
    path.write_text("HELL0 # one")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


def test_other_content_with_an_older_time_stamp(chain: Project) -> None:
    path = chain.write("a.txt", "bye")
    os.utime(path, (1, 1))
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


@pytest.mark.parametrize("field, value", [("config", "-O3"), ("command", ["copy", "a.txt", "build/a.g"])])
def test_another_configuration_or_command(chain: Project, field: str, value: object) -> None:
    chain.steps[0][field] = value
    chain.doit()
    assert chain.ran()[:1] == ["a.g"]
    assert chain.doit().stdout == "2 steps, all up to date\n"


def test_a_deleted_output(chain: Project) -> None:
    (chain.root / "build/a.so").unlink()
    chain.doit()
    assert chain.ran() == ["a.so"]


@pytest.mark.parametrize("text", ["", "HELL", "HELLO, by hand"])
def test_an_output_that_another_program_wrote(chain: Project, text: str) -> None:
    chain.write("build/a.so", text)
    chain.doit()
    assert chain.ran() == ["a.so"]
    assert chain.read("build/a.so") == "HELLO "


def test_an_output_that_something_else_wrote_is_made_again(chain: Project) -> None:
    """By a step that keeps a file newer than its source, and with a state that has no record of the file."""
    chain.steps[1]["command"][0] = "keep"
    assert chain.doit().returncode == 0
    for state in ("build/state.db", "ran"):
        (chain.root / state).unlink()
        chain.write("build/a.so", "a foreign library")
        assert chain.doit().returncode == 0
        assert chain.read("build/a.so") == "HELLO "


def test_an_output_that_the_step_itself_wrote_stays(chain: Project) -> None:
    """After an edit that does not change it, and after a failure: for ninja, a file written again is new."""
    chain.steps[1]["command"][0] = "keep"
    assert chain.doit().returncode == 0
    before = (chain.root / "build/a.so").stat()
    chain.steps[1]["command"][0] = "say"
    assert chain.doit().returncode == 1
    chain.steps[1]["command"][0] = "keep"
    assert chain.doit().returncode == 0
    assert (chain.root / "build/a.so").stat() == before


def test_a_record_is_gone_while_its_step_runs(chain: Project) -> None:
    """A step that ends early must not leave the record of an earlier run as its result."""
    record = chain.step("register:a", "copy", "build/a.so", "build/register/a.json")
    assert chain.doit().returncode == 0 and (chain.root / "build/register/a.json").exists()
    record["command"][0] = "end"
    assert chain.doit().returncode == 1
    assert not (chain.root / "build/register/a.json").exists()


@pytest.mark.parametrize("command", ["end", "system_exit"])
def test_a_step_whose_code_ends_the_process_with_0_has_failed(chain: Project, command: str) -> None:
    chain.steps[1]["command"][0] = command
    done = chain.doit()
    why = "ended with exit code 0 before it was done (code in it called exit; let that raise an error instead)"
    at = ", at case seed" if command == "end" else ""
    assert done.returncode == 1 and f"compile:a: {why}{at}\n" in done.stdout
    chain.ran()
    assert chain.doit().returncode == 1 and chain.ran() == ["a.so"]


def test_an_added_and_a_removed_input(chain: Project) -> None:
    chain.write("b.h", "")
    chain.steps[0]["reads"] = ["a.txt", "b.h"]
    chain.doit()
    assert chain.ran() == ["a.g"]
    chain.steps[0]["reads"] = ["a.txt"]
    chain.doit()
    assert chain.ran() == ["a.g"]


def test_an_input_edited_while_the_step_runs(project: Project) -> None:
    project.write("a.txt", "hello")
    project.step("codegen:a", "edit", "a.txt", "build/a.g")
    assert "a.txt was written while the step ran: it runs again next time" in project.doit().stdout
    project.steps[0]["command"][0] = "copy"
    project.doit()
    assert project.read("build/a.g") == "EDITED MEANWHILE"


def test_an_input_edited_and_reverted_while_the_step_runs(project: Project) -> None:
    project.write("a.txt", "hello")
    project.step("codegen:a", "and_back", "a.txt", "build/a.g")
    project.doit()
    assert project.read("build/a.g") == "FOR A MOMENT"
    assert project.ran() == ["a.g"]
    project.doit()
    assert project.ran() == ["a.g"], "the output was made from something else than its input"


@pytest.mark.parametrize("command", ["edit", "and_back"])
def test_a_declaration_edited_while_the_step_runs(project: Project, command: str) -> None:
    """The key of a step has the declaration at the time of planning; the step reads it again."""
    project.write("spec.py", "hello")
    project.step("codegen:a", command, "spec.py", "build/a.g", reads=[], declared=["spec.py"])
    assert "spec.py was written while the step ran: it runs again next time" in project.doit().stdout
    assert project.ran() == ["a.g"]
    project.steps[0]["command"][0] = "copy"
    project.doit()
    assert project.ran() == ["a.g"] and project.read("build/a.g") == project.read("spec.py").upper()
    project.doit()
    assert project.ran() == []


def test_a_failed_step_runs_again(project: Project) -> None:
    project.write("a.txt", "hello")
    project.step("codegen:a", "say", "a.txt", "build/a.g")
    for _ in range(2):
        assert project.doit().returncode == 1
        assert project.ran() == ["a.g"]


def test_an_old_output_does_not_count_for_a_failed_step(chain: Project) -> None:
    chain.write("a.txt", "bye")
    command = chain.steps[0]["command"]
    chain.steps[0]["command"] = ["say", *command[1:]]
    assert chain.doit().returncode == 1
    chain.write("a.txt", "hello # one")
    chain.steps[0]["command"] = command
    chain.ran()
    chain.doit()
    assert chain.ran() == ["a.g"]


def test_an_output_that_a_step_no_longer_writes_is_removed(project: Project) -> None:
    project.write("a.txt", "x y")
    made = project.step("data:a", "split", "a.txt", "build/d", writes=["build/d/x", "build/d/y"])
    project.doit()
    project.write("a.txt", "x")
    made["writes"] = ["build/d/x"]
    project.doit()
    assert [p.name for p in (project.root / "build/d").iterdir()] == ["x"]


def test_outputs_of_a_removed_operator_are_removed(chain: Project) -> None:
    chain.write("ops/b/spec.py", "")
    for task, target in (
        ("codegen:b", "build/generated/b/b.cc"),
        ("verify:b-custom@cell", "build/verify/b/custom/c.json"),
    ):
        chain.step(task, "copy", "a.txt", target)
    chain.write("build/compile/b/object.o", "")
    chain.doit()
    shutil.rmtree(chain.root / "ops/b")
    del chain.steps[2:]
    done = chain.doit()
    assert "b is no longer in ops/: what was built for it is removed" in done.stdout
    assert not [p for p in (chain.root / "build").rglob("*") if p.name in ("b", "b.log", "b-custom@cell.log")]
    assert chain.read("build/a.so") and chain.read("build/log/codegen/a.log")


def test_outputs_of_a_step_that_is_not_planned_stay(chain: Project) -> None:
    step = chain.step("export:a-custom@opset18", "copy", "a.txt", "build/export/a/18")
    chain.doit()
    chain.ran()
    chain.steps.remove(step)
    chain.doit()
    chain.steps.append(step)
    assert chain.doit().stdout == "3 steps, all up to date\n"


def test_outputs_of_an_operator_without_steps_stay(chain: Project) -> None:
    chain.write("ops/b/spec.py", "")
    step = chain.step("codegen:b", "copy", "a.txt", "build/generated/b/b.cc")
    chain.doit()
    chain.steps.remove(step)
    chain.doit()
    assert chain.read("build/generated/b/b.cc")


def test_a_broken_state_database(chain: Project) -> None:
    chain.write("build/state.db", "this is no database, and it is long enough to be seen as none" * 100)
    done = chain.doit()
    assert "is not a usable database" in done.stderr and done.returncode == 0
    assert chain.ran() == ["a.g", "a.so"]
    assert chain.doit().stdout == "2 steps, all up to date\n"


def test_a_deleted_state_database(chain: Project) -> None:
    (chain.root / "build/state.db").unlink()
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


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
    chain.doit()
    assert chain.ran() == ["a.so"]
    chain.doit("-a", "codegen:a")
    assert chain.ran() == ["a.g"]
    assert chain.doit("forget").stdout == "forgetting all tasks\n"
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


def test_ignored_steps_are_reported(chain: Project) -> None:
    chain.write("a.txt", "bye")
    chain.doit("ignore", "codegen:a")
    assert ": 2 ignored by `doit ignore`\n" in chain.doit().stdout
    chain.doit("forget", "codegen:a")
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


def test_reset_dep_does_not_accept_a_stale_result(chain: Project) -> None:
    chain.write("a.txt", "bye")
    assert chain.doit("reset-dep").returncode == 2
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


def test_info_prints_whether_a_step_would_run(chain: Project) -> None:
    chain.write("a.txt", "bye")
    output = chain.doit("info", "codegen:a").stdout
    assert "status     : run\n" in output and "\nlast took  : 0." in output
    assert chain.doit("info", "compile:a").returncode == 0
    assert chain.ran() == []


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
    output = chain.doit("clean").stdout
    assert "codegen:a: removed 2 files" in output
    assert {p.name for p in (chain.root / "build").iterdir()} <= {"lock", "state.db", "state.db-wal", "state.db-shm"}
    chain.doit()
    assert chain.ran() == ["a.g", "a.so"]


def test_a_selection_by_pattern(chain: Project) -> None:
    chain.step("compile:b", "copy", "a.txt", "build/b.so")
    chain.step("data:b", "copy", "a.txt", "build/b.pb")
    chain.doit("comp*:b")
    assert chain.ran() == ["b.so"]
