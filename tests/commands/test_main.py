"""The program doit of a project. What commands share: the next report shows what one of them has written. Mistakes on
the command line of ``python -m opmatrix``: one sentence each, and the exit code of its kind. `doit --shard`: one
part of the graph, with what it needs, and a report of that part. `opmatrix update`: a project of format 0, as
d912c67 wrote it, works with this opmatrix afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from doit import plugin
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from opmatrix.basics.errors import SanitizeError, SpecError, ToolchainError, UsageError
from opmatrix.commands import stages
from opmatrix.commands.base import report_again, select
from opmatrix.commands.main import Program
from opmatrix.commands.run import select_part
from opmatrix.commands.stages import main
from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import DEFAULT, REPORT, StepTask, doit_tasks
from opmatrix.ort_checks import sanitize
from opmatrix.plan.steps import steps
from opmatrix.project.paths import Paths
from opmatrix.project.settings import FORMAT, read_format
from opmatrix.records.step import Step
from tests.plan.test_step_keys import default_plan
from tests.support.projects import write_files


@pytest.mark.parametrize("group", ["doit.LOADER", "console_scripts", "none.has.this"])
def test_plugins_of_other_packages_are_found(group: str) -> None:
    """doit's search for plug-ins, of which the program keeps the installed distributions, finds the same as before."""
    Program()
    assert sorted(plugin.entry_points_impl()(group=group)) == sorted(entry_points(group=group))


def test_the_report_runs_again_and_no_other_step(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    report_again(paths)
    assert not paths.state.exists()
    journal = Journal(str(paths.state), None)
    for step in (REPORT, "compile:a"):
        journal.record(step, key="k", detail={"config": "x"})
    journal.dump()
    report_again(paths)
    after = Journal(str(paths.state), None)
    assert (after.key(REPORT), after.key("compile:a")) == (None, "k")
    assert after.detail(REPORT) == {"config": "x"}, "doit why still compares"
    after.dump()


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with group_norm's declaration, and the current folder somewhere inside it."""
    copied = [root / "pyproject.toml", *(root / "ops/group_norm" / name for name in ("spec.py", "cases.py"))]
    write_files(
        tmp_path,
        {"dodo.py": "raise AssertionError('nobody runs this')\n", "native/group_norm/kernel.h": ""}
        | {str(path.relative_to(root)): path.read_text() for path in copied},
    )
    monkeypatch.chdir(tmp_path / "ops/group_norm")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("verify group_norm --cell foo", "'foo' is not a cell; a cell is written like"),
        ("verify grup_norm", "there is: group_norm; did you mean 'group_norm'?"),
        (
            "sanitize group_norm --cell torch2.13-legacy-opset21-ort1.31",
            "torch2.13-legacy-opset21-ort1.31: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 21",
        ),
        ("report --opsets all,18", "write 'default', 'all' or opsets like '18,20'"),
    ],
)
def test_a_mistake(project: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    assert main(arguments.split()) == UsageError.exit_code
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)


def test_a_broken_declaration_no_project_and_an_unknown_stage(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = project / "ops/group_norm/spec.py"
    spec.write_text(spec.read_text().replace("minimum=0.0", "minimun=0.0"))
    assert main(["codegen", "group_norm"]) == SpecError.exit_code
    assert "did you mean 'minimum'?" in capsys.readouterr().err
    (project / "dodo.py").unlink()
    assert main(["link-wheel"]) == UsageError.exit_code
    assert "no dodo.py in" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["verfy"])
    assert caught.value.code == 2 and "invalid choice: 'verfy'" in capsys.readouterr().err


BARE = "import sys; sys.path.append({root!r}); from opmatrix.commands.stages import main; sys.exit(main(sys.argv[1:]))"


def test_a_python_without_the_packages(project: Path, root: Path) -> None:
    """Such as a checkout's system Python, without ./run: the message names the command, without a traceback."""
    for arguments in (["data", "group_norm"], ["verify", "group_norm", "--cell", "torch2.13-legacy-opset18-ort1.31"]):
        command = [sys.executable, "-I", "-S", "-c", BARE.format(root=str(root / "pipeline")), *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        assert done.returncode == ToolchainError.exit_code and len(done.stderr.splitlines()) == 2, done.stderr
        assert "is not installed for" in done.stderr and "`./run python`" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("More: `doit doctor` lists what this machine lacks")


def test_a_stage_that_another_stage_runs_says_that_it_is_done(tmp_path: Path) -> None:
    """`sanitize` runs stages in processes: code that ends one with 0, as argparse does for --help, is a failure."""
    project = Paths(Path(__file__).parents[2])
    sanitize._run(project, ["operator-pages", "--into", str(tmp_path)], os.environ)
    with pytest.raises(SanitizeError, match="ended with 0 before it was done: code in it called exit"):
        sanitize._run(project, ["--help"], os.environ)


@pytest.mark.parametrize(
    ("cell", "stage"),
    [("node-opset18-ort1.31", "export-node"), ("torch2.13-dynamo-opset18-ort1.31", "export")],
    ids=["node", "torch"],
)
def test_what_an_export_imports_before_code_of_the_project(
    cell: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a node needs no torch, whose import took 1 CPU s in each step."""
    asked: list[str] = []
    monkeypatch.setattr(stages, "_module", asked.append)
    monkeypatch.setattr(stages, "_run_watched", lambda *_: None)
    assert main(["export", "group_norm", "--lowering", "custom", "--cell", cell]) == 0
    assert asked == [stage]


@pytest.fixture(scope="module")
def planned(root: Path) -> list[Step]:
    return [*steps(default_plan(Paths(root)))]


def part(planned: list[Step], shard: str, paths: Paths, names: list[str]) -> TaskControl:
    return select_part(select([*doit_tasks(planned)], names, commands=()), shard, paths)


def test_the_parts_together_are_the_run(planned: list[Step], tmp_path: Path) -> None:
    """Each verdict in exactly one part but the comparisons of exports; each part has what its steps need."""
    paths, found = Paths(tmp_path), dict[str, str]()
    for shard in ("1/3", "2/3", "3/3"):
        control = part(planned, shard, paths, [*DEFAULT])
        tasks = control.tasks
        assert all(isinstance(task, StepTask) for task in tasks.values())
        assert all(name in tasks for task in tasks.values() for name in task.task_dep)
        own = [name for name in control.selected_tasks if name != REPORT]
        assert not found.keys() & own
        found |= dict.fromkeys(own, shard)
        report = tasks[REPORT].step
        verdicts = {tasks[name].step.verdict for name in own} - {None}
        assert {*paths.shard_list.read_text().splitlines()} == verdicts
        assert report.asks[-2:] == ("--shard", shard) and str(paths.shard_list) in report.reads
        assert {step.verdict for step in planned if step.verdict in report.reads} <= verdicts
    expected = {s.task for s in planned if s.group in DEFAULT and s.verdict and s.command[0] != "compare-exports"}
    assert found.keys() == expected


def test_a_part_of_chosen_steps_and_none_of_a_wheel(planned: list[Step], tmp_path: Path) -> None:
    names = [s.task for s in planned if s.group == "verify" and s.operator == "gelu"]
    parts = [part(planned, f"{n}/2", Paths(tmp_path), names).selected_tasks for n in (1, 2)]
    assert sorted([*parts[0], *parts[1]]) == sorted(names) and parts[0] and parts[1]
    compiled = {name for n in (1, 2) for name in part(planned, f"{n}/2", Paths(tmp_path), ["compile"]).tasks}
    assert {s.task for s in planned if s.group == "compile"} <= compiled
    with pytest.raises(InvalidCommand, match="--shard 1/2: 'dist' needs every cell of the plan, so run it without"):
        part(planned, "1/2", Paths(tmp_path), ["dist"])


PROJECT = {
    "dodo.py": "from pipeline.runner.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n",
    "toxfile.py": "from pipeline.tox_cells import cells_of\n\nenvs, conf = cells_of(__file__)\n",
    "pyproject.toml": '[tool.doit]\nloader = "opmatrix"\n\n# The default cells.\n'
    "[tool.opmatrix.opsets]\nlegacy = [18]\n",
    "tox.ini": "[testenv]\ncommands = python -m pipeline environment ort1.18\n",
    "README.md": "Run `doit 'glue:*'`, then `python -m pipeline link`. Our pipeline/ stays. `doit -n 2 draw:a`\n",
    ".github/workflows/ci.yml": "run: python -m pipeline combine && doit verify\n",
    "ops/a/cases.py": "from pipeline.spec import (\n    Case,\n    Layout,\n)\n\nL: Layout = 'sliced'\n",
    "ops/a/lowering.py": "def custom(g, x):\n    g.refuse('no')\n",
    "ops/a/reference.py": "import numpy as np\n\nx.Layout = Layout = 1\n",
    "ops/b/cases.py": "class Layout: ...\nfrom pipeline.spec import Case\n",
    "ops/b/lowering.py": "import pipeline_tools\nif pipeline_tools:\n    from pipeline.spec import Case\n"
    "from pipeline.lowering.graph import Graph\nsubscription.refuse('x')\n",
    "build/generated/a.py": "from pipeline.spec import OpSpec\n",
    ".venv/lib/a.py": "from pipeline.spec import OpSpec\n",
}
EXPECTED = {
    "dodo.py": "from opmatrix.commands.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n",
    "toxfile.py": "from opmatrix.environments.tox_plugin import cells_of\n\nenvs, conf = cells_of(__file__)\n",
    "pyproject.toml": '[tool.doit]\nloader = "opmatrix"\n\n[tool.opmatrix]\nformat = 1\n\n# The default cells.\n'
    "[tool.opmatrix.opsets]\nlegacy = [18]\n",
    "tox.ini": "[testenv]\ncommands = python -m opmatrix environment ort1.18\n",
    "README.md": "Run `doit 'codegen:*'`, then `python -m opmatrix link-wheel`. Our pipeline/ stays. "
    "`doit -n 2 draw-inputs:a`\n",
    ".github/workflows/ci.yml": "run: python -m opmatrix link-together && doit verify\n",
    "ops/a/cases.py": "from opmatrix.spec import (\n    Case,\n    MemoryLayout,\n)\n\nL: MemoryLayout = 'sliced'\n",
    "ops/a/lowering.py": "def custom(g, x):\n    g.unsupported('no')\n",
    "ops/b/cases.py": "class Layout: ...\nfrom opmatrix.spec import Case\n",
    "ops/b/lowering.py": "import pipeline_tools\nif pipeline_tools:\n    from opmatrix.spec import Case\n"
    "from opmatrix.lowering.graph import Graph\nsubscription.refuse('x')\n",
}


def update(project: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run `doit update`, and return the files of the project afterwards."""
    command = [sys.executable, "-m", "doit", "update", *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    return done, {name: (project / name).read_text() for name in PROJECT}


def test_a_project_of_format_0_is_rewritten(tmp_path: Path) -> None:
    """By a second update no more, nor by a dry run."""
    write_files(tmp_path, PROJECT)
    done, found = update(tmp_path, "--dry-run")
    assert done.returncode == 0 and "would update ops/a/cases.py\n" in done.stdout
    assert found == PROJECT
    done, found = update(tmp_path)
    assert (done.returncode, done.stderr, found) == (0, "", PROJECT | EXPECTED)
    *updated, last = done.stdout.splitlines()
    assert {*updated} == {f"updated {name}" for name in EXPECTED} and last == f"format 0 -> {FORMAT}"
    assert read_format(tmp_path) == FORMAT
    done, found = update(tmp_path)
    assert (done.returncode, done.stdout, found) == (0, f"format {FORMAT}: up to date\n", PROJECT | EXPECTED)


def test_the_update_names_what_it_cannot_rewrite_and_keeps_the_format(tmp_path: Path) -> None:
    """Modules that were never meant for projects: the update does not know their replacement."""
    write_files(tmp_path, PROJECT | {"ops/a/torch_op.py": "import torch\nfrom pipeline.data import arrays\n"})
    done, found = update(tmp_path)
    assert done.returncode == 1
    assert "ops/a/torch_op.py:2: from pipeline.data import arrays" in done.stderr
    assert found == PROJECT and read_format(tmp_path) == 0
