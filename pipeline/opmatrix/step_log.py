"""What a step says for its log alone: what it is at, so that a crash can be named, and what is too long to be shown."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

LOGGED = "OPMATRIX_LOGGED"  # what the process of a step finds in its environment: what it prints goes to a log

_MARK = "# "
_AT = "# at "
_FEW = 3  # faults that are told in full
_NAMES = 12


def now_running(what: str) -> None:
    """Say what is about to be tried, such as ``case seed``: one line of the log, and nothing by hand."""
    if LOGGED in os.environ:
        print(f"{_AT}{what}", flush=True)


def detail(text: str) -> None:
    """Print what is there to be looked up: a log has it, and nobody is shown it."""
    print("\n".join(f"{_MARK}{line}" for line in text.splitlines()), flush=True)


@contextmanager
def capture_stdout() -> Iterator[None]:
    """Tell aside what is written to the standard output meanwhile, by C++ as well: an exporter that fails begins with a
    graph."""
    sys.stdout.flush()
    outside = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(outside, 1)
            os.close(outside)
            file.seek(0)
            if text := file.read().decode(errors="replace").strip():
                detail(text)


def summarize_faults(faults: Mapping[str, str], *, subject: str, where: str) -> str:
    """Return the first faults in full, and of the others, by the names of their cases, one line that says `where` they
    stand: a log has all of them."""
    lines, others = list(faults.values()), [name for names in list(faults)[_FEW:] for name in names.split(", ")]
    if not others:
        return "\n".join(lines)
    if logged := LOGGED in os.environ:
        detail("\n".join(lines[_FEW:]))
    cases = "1 more case is" if len(others) == 1 else f"{len(others)} more cases are"
    named = ", ".join(others[:_NAMES]) + (", ..." if len(others) > _NAMES else "")
    log = "the log, and " if logged else ""
    return "\n".join([*lines[:_FEW], f"{subject}: {cases} wrong: {named}. In full: {log}{where}"])


def visible_lines(log: str) -> str:
    """Return the lines of a log that people are shown."""
    return "\n".join(line for line in log.splitlines() if not line.startswith(_MARK))


def last_running(log: str) -> str:
    """Return what a step said last that it was at, or nothing."""
    return next((line.removeprefix(_AT) for line in reversed(log.splitlines()) if line.startswith(_AT)), "")
