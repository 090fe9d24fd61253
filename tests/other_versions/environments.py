"""Stages run by hand in the environments of old torch."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from opmatrix.project.paths import Paths

ROOT = Path(__file__).resolve().parents[2]
# Those that need their own libraries for every operator.
OLD = ("1.13", "2.0", "2.6")


@dataclass(frozen=True)
class Environment:
    """One environment. It has torch and the packages of the stages, and uses the checkout's own pipeline."""

    torch: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    def run(self, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run its Python."""
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(ROOT / "pipeline"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )

    def stage(self, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a stage of the pipeline on a project."""
        return self.run("-m", "opmatrix", *arguments, cwd=project)


def environment(torch: str) -> Environment:
    """Return the environment with this torch."""
    return Environment(torch, Paths(ROOT).environment(f"torch{torch}"))
