"""The working folder of code of the project: one for each step and each reading of declarations, which goes with it.

What a kernel, a reference, cases.py or spec.py writes by a relative path goes there, and not into the checkout. Links
to what is at the top level of the project let them read by relative paths.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from opmatrix.project.paths import Paths

WORK = "OPMATRIX_WORK"  # in the environment of a step: its working folder, which has the name of its process
# At the top level, and not linked: what a search upwards from the working folder must find in the project, and build/.
_NO_LINKS = frozenset({"dodo.py", ".git", "build"})

WRITTEN = 4000.0  # megabytes that a step may write, unless pyproject.toml names another limit


@contextmanager
def inside(root: Path) -> Iterator[None]:
    """Work in the folder of this step, or in that of the step which started this process. Where a stage runs by hand,
    its folder stays the current one, and what it writes stays there."""
    if WORK not in os.environ:
        yield
        return
    folder, before = Path(os.environ[WORK]), Path.cwd()
    if folder.name == str(os.getpid()):
        make(folder, root)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        if folder.name == str(os.getpid()):  # no process that code of the project has forked
            remove(folder)


def make(folder: Path, root: Path) -> None:
    remove(folder)  # of a process that was killed and had the same number
    folder.mkdir(parents=True)
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name not in _NO_LINKS:
                os.symlink(entry.path, f"{folder}/{entry.name}")  # noqa: PTH211 - as in `files.mark`


def remove(folder: Path) -> None:
    """Remove a folder if it exists, and not what its links point to."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_left(paths: Paths) -> None:
    """Remove the folders of processes that have ended: their server was killed."""
    with suppress(FileNotFoundError):
        for folder in paths.work("").iterdir():
            if not Path("/proc", folder.name.partition("-")[0]).exists():
                remove(folder)
