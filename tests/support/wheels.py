"""The wheel of opmatrix, built from the sources, and wheels of operators with planted faults."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from tests.support.projects import ROOT, Project


def build_wheel(source: Path, into: Path) -> Path:
    """Build the wheel of a checkout or of a copy of one, without a network."""
    command = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", command, str(into)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(into.glob("opmatrix-*.whl"))


def run_planted(project: Project, names: Sequence[str], plant: tuple[str, str, str], folder: Path) -> str:
    """Return what the run of a project's wheel says; `plant`: a file of it, a text, and what replaces the text."""
    from opmatrix.wheel import run_unpacked

    if not project.paths.dist.is_dir():
        shutil.copy(ROOT / "LICENSE", project.root)
        project.passes("dist", "--unverified")
    (wheel,) = project.paths.dist.iterdir()
    made = io.BytesIO()
    file, old, new = plant
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(made, "w") as packed:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(file):
                assert old in content.decode()
                content = content.decode().replace(old, new).encode()
            packed.writestr(name, content)
    use = run_unpacked.WheelRun(
        paths=project.paths,
        name="seed_ops",
        operators=[load_operator(project.paths, name) for name in names],
        cells=[Cell.parse("torch2.13-legacy-opset18-ort1.31")],
        torch="2.13.0",
        folder=folder,
    )
    return run_unpacked.run(made.getvalue(), use)
