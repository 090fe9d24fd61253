"""./run: its decisions before any Python starts, with stubs for the environment and for the Python that makes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINNED = ("requirements/main.txt", "requirements/torch-cpu.txt", "pyproject.toml")


class Checkout:
    """A folder with ./run, the files that it compares, and a stub environment whose only command is `show`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "requirements").mkdir(parents=True)
        for name in PINNED:
            (root / name).write_text(f"# {name}\n")
        shutil.copy(ROOT / "run", root)
        self.python = self.script("stub-python", 'case $1 in -c) exit 0 ;; *) echo "made by $*"; exit 42 ;; esac')

    def script(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def make(self) -> None:
        self.script(".venv/bin/python", "exit 0")
        self.script(".venv/bin/show", 'echo "$VIRTUAL_ENV|$PWD|$#|$2"')
        stamp = self.root / ".venv/stamp"
        stamp.mkdir()
        for name in PINNED:
            shutil.copy(self.root / name, stamp)
        (stamp / "made").write_text(f"{self.root}\n{self.python}\n")

    def run(self, *arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.root / "run"), *arguments]
        settings = {"OPMATRIX_PYTHON": str(self.python), **environ}
        return subprocess.run(
            command, cwd=cwd, env={**os.environ, **settings}, capture_output=True, text=True, check=False
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "Größe und Maß")


@pytest.fixture
def made(checkout: Checkout) -> Checkout:
    checkout.make()
    return checkout


def test_the_command_runs_in_the_environment_and_the_current_folder(made: Checkout, tmp_path: Path) -> None:
    done = made.run("show", "a", "b  c", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{made.root}/.venv|{tmp_path}|2|b  c\n", "")
    assert made.run("sh", "-c", "exit 3").returncode == 3
    done = subprocess.run(["sh", "run", "show"], cwd=made.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "without a path"
    done, message = made.run("nonesuch"), "there is no command 'nonesuch', neither in .venv/bin nor on PATH."
    assert (done.returncode, done.stderr) == (127, f"run: {message}\n")


def test_usage(checkout: Checkout) -> None:
    done, asked = checkout.run(), checkout.run("--help")
    assert (done.returncode, asked.returncode) == (64, 0)
    assert done.stderr == asked.stdout
    assert "./run doit " in asked.stdout


def is_made_anew(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether ./run called the Python that makes the environment, and returned its exit code."""
    return (done.returncode, done.stdout) == (42, "made by -m opmatrix.environments.bootstrap\n")


def test_the_first_call_makes_the_environment(checkout: Checkout) -> None:
    assert is_made_anew(checkout.run("show"))


def moved(made: Checkout) -> None:
    made.root = made.root.rename(made.root.with_name("moved"))
    made.python = made.root / made.python.name


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda made: shutil.rmtree(made.root / ".venv/stamp"), id="interrupted"),
        *(
            pytest.param(lambda made, name=name: (made.root / name).write_text("# changed\n"), id=name)
            for name in PINNED
        ),
        moved,
        pytest.param(lambda made: (made.root / ".venv/bin/python").unlink(), id="no python"),
    ],
)
def test_a_change_makes_the_environment_anew(made: Checkout, change: Callable[[Checkout], object]) -> None:
    change(made)
    assert is_made_anew(made.run("show"))


def test_another_python(made: Checkout) -> None:
    other = made.script("other-python", made.python.read_text())
    assert is_made_anew(made.run("show", OPMATRIX_PYTHON=str(other)))
    assert made.run("show", OPMATRIX_PYTHON="").returncode == 0


def test_unsuitable_python(checkout: Checkout) -> None:
    for version in ("CPython 3.10.12", "CPython 3.14.0", "PyPy 3.11.9"):
        python = checkout.script("old-python", f'case $2 in *exit*) exit 1 ;; *) echo "{version}" ;; esac')
        done = checkout.run("show", OPMATRIX_PYTHON=str(python))
        assert done.returncode == 72
        assert f"CPython 3.11, 3.12 or 3.13 is needed, and '{python}' is {version}." in done.stderr
    done = checkout.run("show", OPMATRIX_PYTHON="/nonesuch")
    assert done.returncode == 72 and "'/nonesuch' is not to be found" in done.stderr


def test_this_python_fits(checkout: Checkout) -> None:
    """The real check with a real Python, which then imports the checkout's own module, not an installed one."""
    package = checkout.root / "pipeline/opmatrix"
    (package / "environments").mkdir(parents=True)
    for name in ("__init__.py", "environments/__init__.py"):
        (package / name).touch()
    (package / "environments/bootstrap.py").write_text("raise SystemExit(43)\n")
    assert checkout.run("show", OPMATRIX_PYTHON=sys.executable).returncode == 43


def test_another_machine(checkout: Checkout) -> None:
    checkout.script("bin/uname", "echo Darwin arm64")
    done = checkout.run("show", PATH=f"{checkout.root}/bin:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (71, "run: opmatrix runs on Linux x86-64, and this is Darwin arm64.\n")
