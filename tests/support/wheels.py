"""The wheel of opmatrix, built from the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def build_wheel(source: Path, into: Path) -> Path:
    """Build the wheel of a checkout or of a copy of one, without a network."""
    command = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", command, str(into)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(into.glob("opmatrix-*.whl"))
