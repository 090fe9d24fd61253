"""The project formats that this opmatrix reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.errors import SpecError, UsageError
from opmatrix.project.settings import FORMAT, check_format, read_format

ROOT = Path(__file__).parents[2]
DOIT = (sys.executable, "-m", "doit")


def project(folder: Path, settings: str) -> Path:
    """Write a project as d912c67 did, with `settings` in its pyproject.toml."""
    (folder / "pyproject.toml").write_text(f'[tool.doit]\nloader = "opmatrix"\n\n{settings}')
    (folder / "dodo.py").write_text("from pipeline.runner.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n")
    return folder


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", 0),
        ("[tool.opmatrix.opsets]\nlegacy = [18]\n", 0),
        ("[tool.opmatrix]\nformat = 1\n", 1),
        ("[tool.opmatrix]\n# why\nformat = 1 # the newest\n", 1),
        ("[tool.opmatrix]\nformat = 7\n", 7),
    ],
)
def test_the_format_is_read(tmp_path: Path, settings: str, expected: int) -> None:
    assert read_format(project(tmp_path, settings)) == expected


@pytest.mark.parametrize(
    ("name", "found"), [("a\nb", r"'\n'"), ("a\rb", r"'\r'"), ("a|b", "'|'"), ("a\udcffb", "bytes that are not UTF-8")]
)
def test_a_path_in_which_nothing_can_be_built_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, found: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    project(folder, f"[tool.opmatrix]\nformat = {FORMAT}\n")
    done = subprocess.run([*DOIT, "list"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"the path of the project contains {found}: '")
    assert done.stderr.endswith("'. Nothing can be built there. Rename the folder\n") and done.stderr.count("\n") == 1
    assert not (folder / "build").exists()


@pytest.mark.parametrize("value", ['"1"', "true", "-1", "1.0", "[1]"])
def test_an_invalid_format_is_an_error(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"\[tool\.opmatrix\]: format: found .*, allowed: a number up to"):
        check_format(project(tmp_path, f"[tool.opmatrix]\nformat = {value}\n"))


def test_a_newer_format_needs_a_newer_opmatrix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"has format {FORMAT + 1} .* reads format {FORMAT}\. Install a newer"):
        check_format(project(tmp_path, f"[tool.opmatrix]\nformat = {FORMAT + 1}\n"))


def test_this_project_has_the_format_of_its_opmatrix() -> None:
    check_format(ROOT)


@pytest.mark.parametrize(
    "command", [[*DOIT], [*DOIT, "list"], [*DOIT, "new"], [sys.executable, "-m", "opmatrix", "compile", "x"]], ids=str
)
def test_a_project_of_an_older_format_has_a_message_with_the_update_command(tmp_path: Path, command: list[str]) -> None:
    """Before its dodo.py runs, which imports a package that is no longer installed."""
    done = subprocess.run(command, cwd=project(tmp_path, ""), capture_output=True, text=True)
    assert done.returncode == UsageError.exit_code
    assert done.stdout == ""
    assert done.stderr == (
        "this project has format 0 (pyproject.toml: [tool.opmatrix] format), and the installed opmatrix reads format "
        "1. Update the project's files with: opmatrix update\n"
    )


def test_a_declaration_that_imports_the_old_package_is_one_sentence(tmp_path: Path) -> None:
    """A file that `opmatrix update` has not rewritten, such as one that was merged later."""
    opsets = "[tool.opmatrix.opsets]\nlegacy = [18]\ndynamo = [18]\nnode = [18]\n"
    project(tmp_path, f"[tool.opmatrix]\nformat = 1\n\n{opsets}")
    (tmp_path / "dodo.py").write_text(
        "from opmatrix.commands.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n"
    )
    for name in ("spec", "cases"):
        (tmp_path / f"ops/old/{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"ops/old/{name}.py").write_text("from pipeline.spec import OpSpec\n")
    command = [sys.executable, "-m", "opmatrix", "check-declaration", "old"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == SpecError.exit_code
    assert done.stderr.splitlines() == [
        f"ops/old/{name}.py:1: imports 'pipeline', which is 'opmatrix' since format 1. "
        "Write `from opmatrix.spec import ...`"
        for name in ("spec", "cases")
    ]
