"""Mistakes on the command line of ``python -m opmatrix``: one sentence each, and the exit code of its kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix import cli
from opmatrix.cli import main
from opmatrix.errors import SanitizeError, SpecError, ToolchainError, UsageError
from opmatrix.project.paths import Paths
from opmatrix.stages import sanitize

DODO = "raise AssertionError('nobody runs this')\n"


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with group_norm's declaration, and the current folder somewhere inside it."""
    (tmp_path / "dodo.py").write_text(DODO)
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    folder = tmp_path / "ops" / "group_norm"
    folder.mkdir(parents=True)
    for name in ("spec.py", "cases.py"):
        (folder / name).write_text((root / "ops/group_norm" / name).read_text())
    (tmp_path / "native" / "group_norm").mkdir(parents=True)
    (tmp_path / "native" / "group_norm" / "kernel.h").touch()
    monkeypatch.chdir(folder)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["verify", "group_norm", "--cell", "foo"],
            UsageError.exit_code,
            "'foo' is not a cell; a cell is written like",
        ),
        (["verify", "grup_norm"], UsageError.exit_code, "there is: group_norm; did you mean 'group_norm'?"),
        (
            ["sanitize", "group_norm", "--cell", "torch2.13-legacy-opset21-ort1.31"],
            UsageError.exit_code,
            "torch2.13-legacy-opset21-ort1.31: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 21",
        ),
        (["report", "--opsets", "all,18"], UsageError.exit_code, "write 'default', 'all' or opsets like '18,20'"),
    ],
)
def test_a_mistake(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def test_a_broken_declaration(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = project / "ops/group_norm/spec.py"
    spec.write_text(spec.read_text().replace("minimum=0.0", "minimun=0.0"))
    assert main(["codegen", "group_norm"]) == SpecError.exit_code
    assert "did you mean 'minimum'?" in capsys.readouterr().err


BARE = "import sys; sys.path.append({root!r}); from opmatrix.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_python_without_the_packages(project: Path, root: Path) -> None:
    """Such as a checkout's system Python, without ./run: the message names the command, without a traceback."""
    for arguments in (["data", "group_norm"], ["verify", "group_norm", "--cell", "torch2.13-legacy-opset18-ort1.31"]):
        command = [sys.executable, "-I", "-S", "-c", BARE.format(root=str(root / "pipeline")), *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        assert done.returncode == ToolchainError.exit_code and len(done.stderr.splitlines()) == 2, done.stderr
        assert "is not installed for" in done.stderr and "`./run python`" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("More: `doit doctor` lists what this machine lacks")


def test_a_stage_outside_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["headers"]) == UsageError.exit_code
    assert "no dodo.py in" in capsys.readouterr().err


def test_an_unknown_stage_has_the_message_of_argparse(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["verfy"])
    assert caught.value.code == 2
    assert "invalid choice: 'verfy'" in capsys.readouterr().err


def test_a_stage_that_another_stage_runs_says_that_it_is_done(tmp_path: Path) -> None:
    """`sanitize` runs stages in processes: code that ends one with 0, as argparse does for --help, is a failure."""
    project = Paths(Path(__file__).parents[1])
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
    monkeypatch.setattr(cli, "_module", asked.append)
    monkeypatch.setattr(cli, "_run_watched", lambda *_: None)
    assert main(["export", "group_norm", "--lowering", "custom", "--cell", cell]) == 0
    assert asked == [stage]
