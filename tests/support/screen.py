"""A terminal of 80x24: what a user sees of a command, while it scrolls past and when the command has ended."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyte

COLUMNS, LINES = 80, 24
_SCROLLED = 1_000_000  # lines that the terminal remembers
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Variables that change what a command prints, which a test's own environment may have.
_UNSET = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI", "GITHUB_ACTIONS", "PYTEST_ADDOPTS")


@dataclass(frozen=True)
class Seen:
    """What a command showed. `screen` is the last screen, `lines` all lines with what scrolled off, both as rows of the
    terminal, which wraps longer lines at its edge. `text` is what the command printed, without colours, with its lines
    whole: a command that a user selects in a terminal comes out as it is in there."""

    code: int
    screen: tuple[str, ...]
    lines: tuple[str, ...]
    text: str

    @property
    def last(self) -> str:
        """The last screen as one string: what can be read without scrolling. The cursor takes its last line."""
        return "\n".join(self.screen)

    def first(self, pattern: str) -> int:
        """Return the number of the first line, from 1 on, in which `pattern` is found."""
        return next(n for n, line in enumerate(self.lines, 1) if re.search(pattern, line))


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    columns: int = COLUMNS,
    lines: int = LINES,
    seconds: float = 3600,
    **environment: str,
) -> Seen:
    """Run a command in a terminal of its own, and return what it shows there. Raises TimeoutError."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, columns))
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {"TERM": "xterm-256color"} | environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        output = _read(ours, until=time.monotonic() + seconds)
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)
    return shown(output, code=code, columns=columns, lines=lines)


def shown(output: str, *, code: int = 0, columns: int = COLUMNS, lines: int = LINES) -> Seen:
    """Return what a terminal shows of `output`, in which lines end with CR LF."""
    screen = pyte.HistoryScreen(columns, lines, history=_SCROLLED)
    pyte.Stream(screen).feed(output)
    scrolled = ["".join(row[x].data for x in range(columns)).rstrip() for row in screen.history.top]
    last = tuple(line.rstrip() for line in screen.display)
    rows = [*scrolled, *last]
    while rows and not rows[-1]:
        rows.pop()
    return Seen(code, last, tuple(rows), _ESCAPES.sub("", output).replace("\r\n", "\n"))


def read_all(terminal: int) -> str:
    """Return what was printed in a terminal whose programs have ended; one call of read may return a part of it."""
    parts = []
    with os.fdopen(terminal, "rb", buffering=0) as printed, suppress(OSError):  # EIO at the end
        while part := printed.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def _read(terminal: int, *, until: float) -> str:
    """Return all that is written to a terminal until its last writer closes it."""
    found = bytearray()
    while select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
        try:
            found += os.read(terminal, 1 << 16)
        except OSError:  # EIO: nobody has it open for writing
            return found.decode(errors="replace")
    raise TimeoutError(f"the command did not end in time; it printed:\n{found.decode(errors='replace')}")
