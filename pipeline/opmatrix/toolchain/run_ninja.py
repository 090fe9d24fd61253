"""Run ninja in a folder that contains no objects and libraries but ninja's own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

from opmatrix.basics.files import digests_by_path, write_text
from opmatrix.basics.step_log import LOGGED, detail

MADE = "made.json"  # the digests of the objects and libraries after ninja last ran
_OUTPUTS = ("*.o", "*.so", "stub/*.so")


def run_ninja(ninja: str, folder: Path, *, jobs: str) -> subprocess.CompletedProcess[str]:
    """Remove each object and library that changed since ninja last ran, print the command, and run it.

    ninja compares only time stamps. It would keep and link a damaged file that is newer than its sources.
    """
    record, made = folder / MADE, dict[str, str]()
    with suppress(OSError, ValueError):
        made = json.loads(record.read_text(encoding="utf-8"))
    for path, digest in _digests(folder).items():
        if made.get(path) != digest:
            (folder / path).unlink()
    command = [ninja, "--quiet", "-j", jobs, "-C", str(folder)]
    shown = f"$ {shlex.join(command)}"
    detail(shown) if LOGGED in os.environ else print(shown, flush=True)
    # ninja keeps the compiler's colours; messages are in English, which `compiler_output` reads, and in UTF-8.
    environment = {**os.environ, "CLICOLOR_FORCE": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    write_text(record, json.dumps(_digests(folder), indent=1) + "\n")
    return done


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for pattern in _OUTPUTS for path in folder.glob(pattern))
    return digests_by_path(paths, folder)
