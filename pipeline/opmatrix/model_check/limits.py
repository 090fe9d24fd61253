"""The limits of time and memory of one model in `doit check`. Imports only the standard library."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SECONDS = 120.0  # over all processes of a model
MEGABYTES, TIMES = 4000.0, 4  # of memory, or so many times the model if that is more


@contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM where the block takes longer, also in a kernel; 0 sets no limit."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def seconds_left() -> float:
    """Return how many seconds of the limit are left, infinity without one."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    return left or float("inf")


def default_megabytes(model: Path) -> float:
    """Return the limit of a model by its size, with the files next to it that it names, such as its weights."""
    size = model.stat().st_size
    if large := [path for path in _large_files(model.parent) if path != model]:
        content = model.read_bytes()
        size += sum(path.stat().st_size for path in large if path.name.encode() in content)
    return max(MEGABYTES, TIMES * size / 1e6)


@cache
def _large_files(folder: Path) -> list[Path]:
    """Return the files that count beside MEGABYTES, but for models."""
    files = (path for path in folder.iterdir() if path.suffix != ".onnx" and path.is_file())
    return [path for path in files if path.stat().st_size > MEGABYTES * 1e6 / TIMES / 100]
