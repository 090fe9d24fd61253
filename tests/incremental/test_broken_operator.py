"""One operator whose files cannot be used: it fails with its mistakes, and everything else works."""

from __future__ import annotations

import os

import pytest

from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import Choice
from opmatrix.records.step import Step
from tests.support.projects import ROOT, Project

pytestmark = pytest.mark.incremental

MISTAKE = "ops/gelu/spec.py: ended the process with status 0 while it was read. It only has to define values"
SOUND = (ROOT / "ops/gelu/spec.py").read_text()
FAILED = f"""
declaration:gelu: failed
  {MISTAKE}
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two operators whose code is generated, of which one then ends the process that reads it."""
    made = Project.copy(tmp_path_factory.mktemp("broken"), operators=("custom_op_one", "gelu"))
    made.passes("codegen")
    made.passes("why")  # without a failure no task is missing
    break_it(made)
    return made


def break_it(project: Project) -> None:
    project.paths.spec("gelu").write_text("import os\nos._exit(0)\n")


def fails(project: Project, *arguments: str) -> str:
    """Run doit, which must fail with the mistake; return what it prints."""
    return project.fails(*arguments, message=FAILED).stdout


def test_the_others_go_on_and_the_run_fails(broken: Project) -> None:
    broken.replace("ops/custom_op_one/spec.py", 'summary="', 'summary="Now: ')
    said = fails(broken, "codegen")
    assert "codegen:custom_op_one\n" in said and said.endswith(": 1 run, 1 failed\n")
    assert fails(broken, "codegen").endswith(": 1 up to date, 1 failed\n"), "it fails as long as it is broken"


def test_it_is_read_once_in_a_run(broken: Project) -> None:
    """It may take all of its time limit."""
    log = broken.root / "log"
    broken.paths.spec("gelu").write_text(f"import os\nopen({str(log)!r}, 'a').write('read ')\nos._exit(0)\n")
    fails(broken, "codegen")
    break_it(broken)
    assert log.read_text() == "read "


def test_what_was_built_for_it_stays(broken: Project) -> None:
    fails(broken, "codegen")
    assert (broken.paths.generated("gelu") / "schema.py").is_file()
    broken.paths.spec("gelu").write_text(SOUND)
    done = broken.doit("codegen:gelu")
    break_it(broken)
    assert (done.returncode, done.stdout) == (0, "1 step, all up to date\n"), done


@pytest.mark.parametrize("name", ["", "gelu", "verify", "report", "sanitize", "dist"])
def test_no_selection_leaves_it_out(broken: Project, name: str) -> None:
    assert "declaration:gelu: did not succeed yet\n" in broken.doit("why", *name.split()).stdout


@pytest.mark.parametrize("name", ["codegen:custom_op_one", "custom_op_one"])
def test_another_selection_does_without_it(broken: Project, name: str) -> None:
    done = broken.doit("why", name)
    assert done.returncode == 0 and "gelu" not in done.stdout + done.stderr


def test_dist_says_why_there_is_none(broken: Project) -> None:
    assert "declaration:gelu failed, 1 step did not run\n" in fails(broken, "dist") and not broken.paths.dist.exists()


def test_the_report_expects_nothing_of_it(broken: Project) -> None:
    """It reads the operators without checks only where the plan found no mistake."""

    def report() -> Step:
        planned = load_or_plan(broken.paths, choice=Choice(), environ=os.environ)
        return next(step for step in planned if step.group == "report")

    broken.paths.spec("gelu").write_text(SOUND.replace('op_type="', 'op_type="of gelu '))
    with_mistake = report()
    broken.paths.spec("gelu").write_text(SOUND)
    without = report()
    break_it(broken)
    assert "--checked" in without.asks and "--checked" not in with_mistake.asks
    assert "gelu" in without.config and "gelu" not in with_mistake.config


def test_commands_work(broken: Project) -> None:
    done = broken.doit("list", "--all")
    assert done.returncode == 0 and "declaration:gelu" in done.stdout and "compile:custom_op_one" in done.stdout
    done = broken.doit("info", "declaration:gelu")
    assert (done.returncode, done.stderr) == (1, "") and "status     : run" in done.stdout  # doit: 1 is out of date
    done = broken.doit("new", "--schema", "my::again(Tensor x) -> Tensor", "--domain", "mydomain")
    assert done.returncode == 0 and "wrote ops/again/spec.py" in done.stdout, done


def test_the_step_by_hand_says_the_same(broken: Project) -> None:
    done = broken.stage("check-declaration", "gelu")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"{MISTAKE}\n")
    done = broken.stage("check-declaration", "custom_op_one")
    assert (done.returncode, done.stdout) == (0, "custom_op_one: no mistake in its declaration and cases\n")
    done = broken.stage("check-declaration", "custom_op_one", "--planned")
    assert done.returncode == 3 and "could not be used when doit planned, and can be by now" in done.stderr
    done = broken.stage("dist")
    assert (done.returncode, done.stderr) == (3, f"{MISTAKE}\n")
