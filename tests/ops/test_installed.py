"""A project of its own uses opmatrix as an installed package: what it needs of it is in the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = ("pipeline", "native", "pyproject.toml", "README.md", "LICENSE")

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy: setuptools writes to build/, where our own results are."""
    copy, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    build = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", build, str(made)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(made.glob("opmatrix-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment that has the wheel, and this environment's packages behind it, but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    with zipfile.ZipFile(wheel) as archive:  # all that pip does with one that is pure Python
        archive.extractall(packages)
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write a project of one operator: what its owner writes, and nothing of opmatrix."""
    for part in ("ops/group_norm", "native/group_norm"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def run(python: Path, project: Path, *command: str) -> str:
    done = subprocess.run(
        [str(python), *command],
        cwd=project,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_headers_and_no_operator(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel).namelist()
    assert "pipeline/native/include/opmatrix/tensor_view.h" in held
    assert "pipeline/native/binding/runtime.cc" in held
    assert not [name for name in held if "group_norm" in name or name.startswith(("ops/", "native/"))]


def test_a_project_of_its_own(python: Path, project: Path) -> None:
    where = run(python, project, "-c", "import pipeline; print(pipeline.__file__)").strip()
    assert not Path(where).is_relative_to(ROOT)
    out = run(python, project, "-m", "doit", "opsets=18")
    assert "4 cells: 4 verified" in out
    assert not (project / "native/include").exists()
    assert "all up to date" in run(python, project, "-m", "doit", "opsets=18")
    # What a wheel copies of opmatrix is in its own wheel.
    run(python, project, "-m", "doit", "dist")
    (shipped,) = (project / "build/dist").glob("seed_ops-*.whl")
    held = zipfile.ZipFile(shipped).namelist()
    assert {"seed_ops/_opmatrix/LICENSE", "seed_ops/_opmatrix/shipped/register.py", "seed_ops/libseed_ops_ort.so"} <= {
        *held
    }
    # A header of the installed package is an input as much as one of the project.
    header = Path(where).parent / "native/include/opmatrix/math.h"
    before = header.read_text()
    header.write_text(before + "// edited\n")
    try:
        assert "compile:group_norm" in run(python, project, "-m", "doit", "opsets=18")
    finally:
        header.write_text(before)
