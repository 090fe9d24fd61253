"""Replay a folder of `save-case` in a process that can import neither opmatrix nor onnx."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In the folder's program, these raise ImportError: the reader has none of them.
WITHOUT = """
import sys, runpy
sys.modules.update(opmatrix=None, onnx=None, ml_dtypes=None)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def replayed(folder: Path) -> subprocess.CompletedProcess[str]:
    """Take the folder elsewhere, and run its program there, in an empty environment."""
    moved = folder.rename(folder.with_name(f"{folder.name}-elsewhere"))
    command = [sys.executable, "-I", "-c", WITHOUT, str(moved / "replay.py")]
    return subprocess.run(command, cwd="/", env={}, capture_output=True, text=True)
