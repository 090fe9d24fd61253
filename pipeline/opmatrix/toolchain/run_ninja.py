"""Run ninja in a folder in which it makes every object and library."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

from opmatrix.files import write_text

MADE = "made.json"  # digests of what the last ninja left
_OUTPUTS = ("*.o", "*.so", "stub/*.so")


def run_ninja(ninja: str, folder: Path, *, jobs: str) -> subprocess.CompletedProcess[str]:
    """Print the command and run it, after removing each object and library that differs from what the last ninja left.

    ninja compares only time stamps: a file that is damaged, or written by another program, and newer than its sources
    would stay, and be linked and shipped.
    """
    record, made = folder / MADE, dict[str, str]()
    with suppress(OSError, ValueError):
        made = json.loads(record.read_text())
    for path, digest in _digests(folder).items():
        if made.get(path) != digest:
            (folder / path).unlink()
    command = [ninja, "--quiet", "-j", jobs, "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    write_text(record, json.dumps(_digests(folder), indent=1) + "\n")
    return done


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for pattern in _OUTPUTS for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
