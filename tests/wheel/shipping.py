"""A wheel of operators, built for the tests, and environments that have it but not this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.projects import ROOT, Project

OPERATORS = ("add_and_round", "custom_op_one", "custom_op_two", "dual_residual", "group_norm", "nms")
MODEL = Path(__file__).with_name("model.py")
VARIABLE = "OPMATRIX_ENVIRONMENTS"
SETTINGS = """
[tool.opmatrix.dist]
name = "my_ops"
version = "1.0.0"
license = "Apache-2.0"
license-files = ["LICENSE.txt"]
"""


def project(folder: Path, *, settings: str = SETTINGS) -> Project:
    """Write a project with operators of this repository and settings for their wheel; one of them has a batch."""
    made = Project.copy(folder, operators=OPERATORS)
    text, _, rest = (folder / "pyproject.toml").read_text().partition("[tool.opmatrix.dist]")
    (folder / "pyproject.toml").write_text(text + "[tool.doit]\n" + rest.partition("[tool.doit]\n")[2] + settings)
    made.replace("ops/dual_residual/spec.py", 'name="cst::dual_residual"', 'name="cst::dual_residual", batch="..."')
    (folder / "LICENSE.txt").write_text("As you like it.\n")
    return made


def build(made: Project) -> Path:
    """Build the wheel without verification, which takes a minute; test_dist_faults.py builds a verified one."""
    made.passes("dist", "--unverified")
    return wheel_of(made)


def wheel_of(made: Project) -> Path:
    (found,) = made.paths.dist.iterdir()
    return found


@dataclass(frozen=True)
class Environment:
    """An environment that has the wheel and the packages of another environment, and nothing of this checkout."""

    python: Path

    @classmethod
    def make(cls, folder: Path, wheel: Path, *, behind: Path) -> Environment:
        """Install the wheel with pip; `behind` is the Python of the environment with the other packages."""
        subprocess.run([str(behind), "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages, theirs = (
            Path(subprocess.run([str(p), "-c", ask], capture_output=True, text=True, check=True).stdout.strip())
            for p in (folder / "bin/python", behind)
        )
        (packages / "behind.pth").write_text(f"{theirs}\n")
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
        return cls(folder / "bin/python")

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=self.python.parent,
            env=environ,
            capture_output=True,
            text=True,
        )

    def check(self, *arguments: str | Path) -> str:
        """Run its Python, which must succeed; return its output."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def other_python(name: str) -> Path:
    """Return the Python of the environment ``torch2.9`` or ``ort1.18``, or skip the test that asks for it."""
    folder = Path(os.environ.get(VARIABLE) or ROOT / ".venv-matrix").resolve() / name
    if not (folder / "stamp").is_dir():  # which is written last
        pytest.skip(f"no environment '{folder}'; {VARIABLE} names the folder with {name}/ and the like")
    return folder / "bin/python"
