"""`doit bench`: its mistakes on the command line, and those of a revision. tests/addons/bench times operators."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.addons.bench.command import Bench, Revision, commit_of
from opmatrix.basics.errors import UsageError
from opmatrix.declaration.load import load_operator
from opmatrix.engine.lock import hold
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT, write_files

GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost")


def doit(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "doit", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0", "nms"], "doit bench: --budget takes seconds above 0, found 0\n"),
        (["--budget", "long"], "doit bench: --budget takes a number: "),
        (["group_nrom"], "no operator 'group_nrom' in ops/, there is: "),
        (["gelu"],
         "doit bench: gelu: opmatrix builds no library of it, because torch and ONNX Runtime have the kernels: "),
        (["nms", "--budget", "9"], "'--budget' is taken for an operator: options come before operators\n"),
        (["--against", "no-such-revision", "nms"], "--against: git knows no revision 'no-such-revision', allowed: "),
        (["--against", "--all", "nms"], "--against: git knows no revision '--all', allowed: "),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line(arguments: list[str], message: str) -> None:
    done = doit("bench", *arguments)
    assert done.returncode == 2 and done.stderr.startswith(message) and not done.stdout, done.stderr


def test_without_a_file_of_rows_an_operator_must_be_named_and_another_run_is_refused(tmp_path: Path) -> None:
    names = ("dodo.py", "pyproject.toml", *(f"ops/dual_residual/{file}.py" for file in ("spec", "cases", "reference")))
    write_files(tmp_path, {name: (ROOT / name).read_text() for name in names})
    done = doit("bench", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("doit bench: no operator has a file ops/<name>/bench.py. Name an operator to time")
    with hold(Paths(tmp_path).lock):
        done = doit("bench", "dual_residual", cwd=tmp_path)
    assert done.returncode == 3 and done.stderr.startswith(f"another run is at work in {tmp_path}/build: process ")
    assert "Run: doit" not in done.stderr, "no step failed"


def test_ctrl_c_while_it_compiles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(subprocess, "run", interrupted)
    options = {"budget": 1.0, "threads": 0, "row": "", "against": "", "no_compile": False}
    assert Bench().execute(options, ["nms"]) == 130
    assert capsys.readouterr().err.startswith("interrupted; ")


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("GIT_CEILING_DIRECTORIES", r"^--against takes a revision of git, and '{}' is in no git "),
        ("PATH", r"^--against takes a revision of git, and there is no git on PATH\. Install "),
    ],
)
def test_a_folder_in_no_repository_and_a_machine_without_git(
    variable: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(UsageError, match=message.format(folder)):
        commit_of(folder, "HEAD")


def test_a_revision_without_the_operator(tmp_path: Path) -> None:
    write_files(tmp_path, {"old.txt": "before\n"})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "before"]):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True, env=os.environ)
    commit = commit_of(tmp_path, "HEAD")
    assert len(commit) == 40
    old = Revision(paths=Paths(tmp_path), operator=load_operator(Paths(ROOT), "nms"), rev="HEAD", commit=commit)
    message = r"^--against: HEAD has no ops/nms/spec\.py: the operator is newer\. Choose a "
    with pytest.raises(UsageError, match=message):
        old.build()
