"""The limits of time and memory of one model in `doit check`. Imports only the standard library."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

SECONDS = 120.0  # over all processes of a model
NODE_SECONDS = 20.0  # CPU seconds of the comparison of one node
MEGABYTES, TIMES = 4000.0, 4  # of memory, or so many times the model if that is more


_until = math.inf


class TooSlowError(BaseException):
    """The block of `bounded` takes too long. Code that catches each Exception lets it through."""


def begin(seconds: float) -> None:
    """Let this process know how many seconds its model has left; 0: no limit."""
    global _until
    _until = time.monotonic() + seconds if seconds else math.inf


def seconds_left() -> float:
    """Return how many seconds the model has left."""
    return _until - time.monotonic()


@contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM where the block takes longer, also in a kernel; 0 sets no limit."""
    begin(seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        begin(0)


@contextmanager
def bounded() -> Iterator[None]:
    """Raise TooSlowError in the block, of Python code, where it takes more CPU seconds than one node may."""
    seconds = max(0.001, min(NODE_SECONDS, seconds_left() / 4))

    def stop(*_: object) -> NoReturn:
        raise TooSlowError(f"its reference takes more than {seconds:.2g} CPU s; --seconds gives it a fourth of more")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


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
