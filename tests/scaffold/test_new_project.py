"""`doit new --project DIR`: what it writes, what it rejects, and what commands do outside a project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.commands import main
from opmatrix.project.paths import Paths
from opmatrix.project.settings import default_opsets, installed, is_project
from opmatrix.scaffold import new_project
from opmatrix.wheel import settings

FILES = [".gitignore", "README.md", "dodo.py", "pyproject.toml", "tox.ini", "toxfile.py"]


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not a project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Typed:
    """Runs `opmatrix ARGUMENT...` in the current folder."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return the output; an error prints nothing on stdout."""
        self.monkeypatch.setattr(sys, "argv", ["opmatrix", *arguments])
        assert main.main() == code
        out, err = self.capsys.readouterr()
        assert not (out if code else err)
        return err if code else out

    def refused(self, *arguments: str) -> str:
        """Return the error message; nothing is written."""
        before = below(Path.cwd())
        said = self("new", *arguments, code=2)
        assert below(Path.cwd()) == before
        return said


@pytest.fixture
def opmatrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capsys)


def test_a_project_is_written(folder: Path, opmatrix: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also into a clone without files."""
    said = opmatrix("new", "--project", "deep/My-Ops")
    made = folder / "deep/My-Ops"
    assert below(made) == FILES and is_project(made)
    assert "wrote deep/My-Ops/dodo.py\n" in said and "my_ops: a project without operators" in said
    assert "next: cd deep/My-Ops\nthen: doit new --schema 'my::scale_shift(" in said
    assert tomllib.loads((made / "pyproject.toml").read_text())["tool"]["opmatrix"]["dist"]["name"] == "my_ops"
    assert all(default_opsets(Paths(made)).values()) and settings.read(Paths(made), ()) is None
    (folder / "here/.git").mkdir(parents=True)
    monkeypatch.chdir(folder / "here")
    opmatrix("new", "--project", ".")
    assert below(folder / "here") == [".git", *FILES]


def test_the_checkout_has_the_files_of_a_project(root: Path) -> None:
    """The files that need no edit: a user's project and this repository have equal ones."""
    made = new_project.render("any")
    for name in ("dodo.py", "toxfile.py"):
        assert (root / name).read_text() == made[name]
    for text in (made["pyproject.toml"], (root / "pyproject.toml").read_text()):
        assert tomllib.loads(text)["tool"]["doit"] == {"loader": "opmatrix"}


def test_existing_files_are_kept(folder: Path, opmatrix: Typed) -> None:
    (folder / "ops.d").mkdir()
    (folder / "ops.d/README.md").write_text("mine")
    (folder / "file").touch()
    said = opmatrix.refused("--project", "ops.d")
    assert said == (f"--project {folder}/ops.d: it contains README.md, and nothing is overwritten. Choose a folder "
                    "that is new, or contains only .git and .venv. Nothing was written.\n")  # fmt: skip
    assert (folder / "ops.d/README.md").read_text() == "mine"
    assert "/file: it is a file. Choose another name" in opmatrix.refused("--project", "file")


def test_no_project_inside_another(folder: Path, opmatrix: Typed) -> None:
    opmatrix("new", "--project", "outer")
    said = opmatrix.refused("--project", "outer/examples/inner")
    assert f"it would be inside the project '{folder}/outer'" in said
    (folder / "docs").mkdir()
    (folder / "docs/dodo.py").touch()  # a dodo.py that is not of opmatrix
    opmatrix("new", "--project", "docs/inner")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--project", "1st"], "--project 1st: the folder's name is the package's: found '1st', allowed: what Python "),
        (["--project", "torch"], "found 'torch', allowed: a name that is not taken by Python itself or a package"),
        (["--project", "fine", "--name", "my ops"], "--name my ops: found 'my ops', allowed: what Python can import"),
        (["--project", "fine", "--schema", "my::f(Tensor x) -> Tensor"], "come into it later: leave out --schema"),
        (["--project", "/dev/null/fine"], "--project /dev/null/fine: Not a directory: '/dev/null/fine'. Nothing was "),
        (["--projekt", "fine"], "did you mean '--project'?"),
        (["--project", "p", "--ci", "gitub"], "--ci: found 'gitub'; did you mean 'github'?; allowed: github"),
        (["--ci", "github"], "no dodo.py in"),
        (["--ci", "github", "--schema", "x"], "--ci writes a workflow, and operators come into it later: leave out"),
    ],
)
def test_invalid_options_are_reported(opmatrix: Typed, arguments: list[str], message: str) -> None:
    assert message in opmatrix.refused(*arguments)


def test_all_files_or_none(folder: Path, opmatrix: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another program writes at the same time is kept."""

    def full(path: Path, *arguments: Any, **options: Any) -> IO[Any]:
        if path.name == "pyproject.toml":
            (folder / "one/two/notes").touch()
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **options)

    real = Path.open
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        said = opmatrix("new", "--project", "one/two", code=2)
    assert said == f"--project {folder}/one/two: No space left on device. Nothing was written.\n"
    assert below(folder) == ["one", "one/two", "one/two/notes"]
    readme = folder / "one/README.md"
    readme.write_text("mine")
    with pytest.raises(UsageError, match=f"File exists: '{readme}'. Nothing was written"):
        new_project.write(readme.parent, new_project.render("one"))
    assert below(readme.parent) == ["README.md", "two", "two/notes"] and readme.read_text() == "mine"


def test_commands_outside_any_project(folder: Path, opmatrix: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opmatrix("list", code=2) == (f"no dodo.py in {str(folder)!r} or above it; go to the folder of the project, "
                                        "or make one: opmatrix new --project DIR\n")  # fmt: skip
    opmatrix("new", "--project", "one")
    (folder / "one/ops").mkdir()
    monkeypatch.chdir(folder / "one/ops")
    assert f"the project is in '{folder}/one': go there" in opmatrix(code=2)


def doit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "doit", *arguments], cwd=folder, capture_output=True, text=True)


def test_doit_creates_a_project_and_runs_only_what_opmatrix_plans(folder: Path) -> None:
    assert doit(folder, "new", "--project", "one").returncode == 0 and below(folder / "one") == FILES
    outside = doit(folder)
    assert outside.returncode == 3 and "Could not find dodo file" in outside.stderr
    with (folder / "one/dodo.py").open("a") as file:
        file.write("\n\ndef task_hello():\n    return {'actions': ['echo hello']}\n")
    done = doit(folder / "one", "list")
    assert done.returncode == 3 and done.stderr.startswith("dodo.py: found task 'hello', allowed: what opmatrix plans")


def test_another_doit_project_keeps_its_commands(folder: Path) -> None:
    """doit sees the entry points of opmatrix in the same environment, but `run`, `list` and the state are doit's."""
    (folder / "dodo.py").write_text("def task_hello():\n    return {'actions': ['echo hello'], 'verbosity': 2}\n")
    done = doit(folder)
    assert (done.returncode, done.stdout) == (0, ".  hello\nhello\n")
    assert not (folder / "build").exists()


def test_pyproject_may_name_a_command(folder: Path, opmatrix: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doit settings of a project override those of opmatrix."""
    opmatrix("new", "--project", "one")
    monkeypatch.chdir(folder / "one")
    with (folder / "one/pyproject.toml").open("a") as file:
        file.write('\n[tool.doit.plugins.command]\nwhy = "opmatrix.commands.state:List"\n')
    commands = main.Program().get_cmds()
    assert commands.get_plugin("why").__name__ == "List"
    assert commands.get_plugin("run").__module__ == "opmatrix.commands.run"


def test_a_command_line_that_is_not_doits_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another program, sys.argv has other arguments, which doit would parse as its own."""
    monkeypatch.setattr(sys, "argv", ["pytest", "list"])
    with pytest.raises(UsageError, match=r"in Python use opmatrix\.commands\.main\.Program"):
        main.hand_over()


# Continuous integration.


def test_a_workflow_comes_with_a_new_project_or_into_one(
    opmatrix: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One below the top of a repository says so. Its actions are pinned by commit."""
    said = opmatrix("new", "--project", "my_ops", "--ci", "github")
    assert f"wrote my_ops/{new_project.WORKFLOW}\n" in said
    written = (folder / "my_ops" / new_project.WORKFLOW).read_text()
    assert f"TORCH: torch=={installed().torch.partition('+')[0]}\n" in written
    assert f"OPMATRIX: opmatrix=={metadata.version('opmatrix')}\n" in written
    assert 'torch: ["1.13", "2.0", "2.6", "2.9", "2.13", "2.15"]\n' in written, "a job per torch"
    used = re.findall(r"uses: (\S+) # v\d", written)
    assert len(used) == written.count("uses:") and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", u) for u in used)
    monkeypatch.chdir(folder / "my_ops")
    assert "is there already, and nothing is overwritten" in opmatrix.refused("--ci", "github")
    shutil.rmtree(".github")
    assert opmatrix("new", "--ci", "github") == f"wrote {new_project.WORKFLOW}\n"
    assert Path(new_project.WORKFLOW).read_text() == written
    shutil.rmtree(".github")
    (folder / ".git").mkdir()
    moved = f"move {new_project.WORKFLOW} to {folder}, and add to each job: defaults: {{run: {{working-"
    assert moved in opmatrix("new", "--ci", "github")
