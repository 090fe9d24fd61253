"""The project formats that this opmatrix reads. The names of the matrix's environments in tox."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.errors import SpecError, UsageError
from opmatrix.basics.version import minor
from opmatrix.environments.tox_plugin import Factors, labels
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.project.settings import (
    FORMAT,
    check_format,
    default_opsets,
    installed,
    read_format,
    step_limits,
    with_environment,
)
from tests.support.projects import write_files


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("[tool.opmatrix]\nlimits = 5", "limits: found 5, allowed: a table"),
        ("[tool.opmatrix.limits]\nseconds = 0", "seconds: found 0, allowed: a number above 0"),
        ("[tool.opmatrix.limits]\nwritten = '4 GB'", "written: found '4 GB', allowed: a number above 0"),
        (
            "[tool.opmatrix.limits]\nmegabyte = 5",
            "megabyte: unknown setting, allowed: seconds, megabytes, written; did you mean 'megabytes'?",
        ),
    ],
)
def test_a_wrong_limit_is_reported(table: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{table}\n")
    with pytest.raises(UsageError) as caught:
        step_limits(Paths(tmp_path))
    assert str(caught.value) == f"pyproject.toml: {table.partition(chr(10))[0]}: {text}"


def test_all_wrong_opsets_are_reported_also_those_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opmatrix.opsets]\nlegacy = 18\ndynamo = [99]\n")
    with pytest.raises(UsageError) as caught:
        default_opsets(Paths(tmp_path))
    legacy, dynamo, node = str(caught.value).splitlines()
    assert legacy.endswith("legacy: found 18, allowed: a list of opsets such as [18, 20]")
    assert "dynamo: " in dynamo and "99" in dynamo
    assert node.endswith("node: found None, allowed: a list of opsets such as [18, 20]")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/dev"}, "/home/dev/.cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "/var/cache"}, "/var/cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "relative"}, "/home/dev/.cache/opmatrix"),
    ],
)
def test_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder)


DOIT = (sys.executable, "-m", "doit")


def project(folder: Path, settings: str) -> Path:
    """Write a project as d912c67 did, with `settings` in its pyproject.toml."""
    (folder / "pyproject.toml").write_text(f'[tool.doit]\nloader = "opmatrix"\n\n{settings}')
    (folder / "dodo.py").write_text("from pipeline.runner.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n")
    return folder


def test_the_format_is_read(tmp_path: Path) -> None:
    for settings, expected in (
        ("", 0),
        ("[tool.opmatrix.opsets]\nlegacy = [18]\n", 0),
        ("[tool.opmatrix]\nformat = 1\n", 1),
        ("[tool.opmatrix]\n# why\nformat = 1 # the newest\n", 1),
        ("[tool.opmatrix]\nformat = 7\n", 7),
    ):
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


@pytest.mark.parametrize("value", ['"1"', "true", "-1", "1.0", "[1]", FORMAT + 1])
def test_an_invalid_format_or_a_newer_one_is_an_error(tmp_path: Path, value: str | int) -> None:
    check_format(Path(__file__).parents[2])
    newer = rf"has format {value} .* reads format {FORMAT}\. Install a newer"
    invalid = r"\[tool\.opmatrix\]: format: found .*, allowed: a number up to"
    with pytest.raises(UsageError, match=newer if isinstance(value, int) else invalid):
        check_format(project(tmp_path, f"[tool.opmatrix]\nformat = {value}\n"))


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
    files = {f"ops/old/{name}.py": "from pipeline.spec import OpSpec\n" for name in ("spec", "cases")}
    dodo = "from opmatrix.commands.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n"
    write_files(tmp_path, {"dodo.py": dodo, **files})
    command = [sys.executable, "-m", "opmatrix", "check-declaration", "old"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == SpecError.exit_code
    text = "imports 'pipeline', which is 'opmatrix' since format 1. Write `from opmatrix.spec import ...`"
    assert done.stderr.splitlines() == [f"{file}:1: {text}" for file in files]


FACTORS = Factors(torches=("1.13", "2.13"), orts=("1.18", "1.31"), opsets=(9, 18, 25))


def test_only_supported_versions_have_a_name() -> None:
    """An opset is a part of its torch."""
    first = ["torch1.13", "torch1.13-opset9", "torch2.13", "torch2.13-opset9"]
    assert [*FACTORS.names()] == [*first, "torch2.13-opset18", "torch2.13-opset25", "ort1.18", "ort1.31"]
    assert labels("torch2.13", main="2.13") == ("full", "torch", "quick")
    assert labels("torch1.13", main="2.13") == ("full", "torch")
    assert labels("ort1.18", main="2.13") == ("full", "ort")
    assert labels("torch2.13-opset18", main="2.13") == ()


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("torch2.13", Choice(torch="2.13")),
        ("torch1.13-opset9", Choice(torch="1.13", opsets="9")),
        ("ort1.18", Choice(torch="made", ort="1.18")),
        ("lint", None),
        ("py311", None),
    ],
)
def test_the_cells_that_a_name_chooses(name: str, choice: Choice | None) -> None:
    assert FACTORS.choice(name) == choice


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch1.13-opset18", "torch1.13-opset18: the legacy exporter of torch 1.13 writes opsets 7 to 17, not 18; "
         "torch 1.13 has no exporter that takes a custom_translation_table; torch 2.6 is the first"),
        ("torch2.13-opset26", "torch2.13-opset26: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 26; the "
         "dynamo exporter of torch 2.13 writes opsets 18 to 25, not 26"),
        ("torch2.13-opset19", "opset 19 is legal, and has no name in tox, which has 9, 18, 25"),
        ("torch2.13-opset", "found opset '', allowed: a number"),
        ("torch2.14", "there is no torch2.14; allowed: torch1.13, torch2.13; did you mean '2.13'?"),
        ("ort1.17", "there is no ort1.17; allowed: ort1.18, ort1.31"),
    ],
)  # fmt: skip
def test_an_unsupported_name_has_the_reason_of_the_table(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        FACTORS.choice(name)


def test_tox_without_arguments_runs_the_fast_environments(root: Path) -> None:
    """tox.ini has the main environment's torch, for which tox has no label."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(root / "tox.ini")
    main = minor(installed().torch)
    quick = [s.partition(":")[2] for s in settings.sections() if "quick" in settings[s].get("labels", "")]
    assert settings["tox"]["env_list"].split(", ") == [*quick, f"torch{main}"]


def test_every_environment_of_this_project_has_pins_and_a_row(root: Path) -> None:
    """Without a row in pipeline/opmatrix/project/cells.py, a file in requirements/ would be silently ignored."""
    torches, orts = with_environment(Paths(root))
    pinned = {p.stem for p in (root / "requirements").glob("*.txt") if re.fullmatch(r"(torch|ort)[\d.]+\d", p.stem)}
    named = {f"torch{v}" for v in torches} | {f"ort{v}" for v in orts}
    assert named == pinned, "those of .venv as well: a project may have others installed"
    assert set(Factors.of(torches=[*torches], orts=[*orts], default=default_opsets(Paths(root))).names()) >= named
