"""`opmatrix update`: a project of format 0, as d912c67 wrote it, works with this opmatrix afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.commands.update import update_text
from opmatrix.project.settings import FORMAT, read_format
from tests.support.projects import write_files

UPDATE = (sys.executable, "-m", "doit", "update")

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
}


def write(folder: Path, files: dict[str, str]) -> Path:
    write_files(folder, files)
    return folder


def update(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*UPDATE, *options], cwd=project, capture_output=True, text=True)


def texts(project: Path) -> dict[str, str]:
    return {name: (project / name).read_text() for name in PROJECT}


def test_a_project_of_format_0_is_rewritten(tmp_path: Path) -> None:
    project = write(tmp_path, PROJECT)
    done = update(project)
    assert (done.returncode, done.stderr) == (0, "")
    assert texts(project) == PROJECT | EXPECTED
    lines = done.stdout.splitlines()
    assert lines[-1] == f"format 0 -> {FORMAT}"
    assert {*lines[:-1]} == {f"updated {name}" for name in EXPECTED}
    assert read_format(project) == FORMAT


def test_a_second_update_changes_nothing(tmp_path: Path) -> None:
    project = write(tmp_path, PROJECT)
    update(project)
    done = update(project)
    assert (done.returncode, done.stdout) == (0, f"format {FORMAT}: up to date\n")
    assert texts(project) == PROJECT | EXPECTED


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    project = write(tmp_path, PROJECT)
    done = update(project, "--dry-run")
    assert done.returncode == 0 and "would update ops/a/cases.py\n" in done.stdout
    assert texts(project) == PROJECT


def test_the_update_names_what_it_cannot_rewrite_and_keeps_the_format(tmp_path: Path) -> None:
    """Modules that were never meant for projects: the update does not know their replacement."""
    project = write(tmp_path, PROJECT | {"ops/a/torch_op.py": "import torch\nfrom pipeline.data import arrays\n"})
    done = update(project)
    assert done.returncode == 1
    assert "ops/a/torch_op.py:2: from pipeline.data import arrays" in done.stderr
    assert texts(project) == PROJECT
    assert read_format(project) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class Layout: ...\nfrom pipeline.spec import Case\n", "class Layout: ...\nfrom opmatrix.spec import Case\n"),
        ("import pipeline_tools\n", "import pipeline_tools\n"),
        ("    from pipeline.spec import Case\n", "    from opmatrix.spec import Case\n"),
        ("from pipeline.lowering.graph import Graph\n", "from opmatrix.lowering.graph import Graph\n"),
        ("subscription.refuse('x')\n", "subscription.refuse('x')\n"),
    ],
)
def test_only_names_of_opmatrix_change(text: str, expected: str) -> None:
    assert update_text(text, python=True) == expected
