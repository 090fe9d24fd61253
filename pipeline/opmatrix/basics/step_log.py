"""The log of a step: mark which case runs now, so that a crash names it, write details that only the log shows, and the
cause of a failure for the last lines of a run. How far long work is: a line that is rewritten in a terminal, a line now
and then elsewhere, marks in a step's log.

A line that begins with ``# `` is in the log and not in the terminal. `opmatrix.engine.step_failure` reads the log.
Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO

from opmatrix.basics.errors import Cause, OpmatrixError

SAY_DONE = "OPMATRIX_SAY_DONE"  # a descriptor, to which `python -m opmatrix STAGE` writes after the stage returned
RAN = "OPMATRIX_RAN"  # in the environment of the report's step: the operators of which a step ran, with commas
LOGGED = "OPMATRIX_LOGGED"  # set in the environment of a step whose output goes to a log

# The engine stops a step that prints more: a kernel that prints its input would fill the disk.
MOST_BYTES = 100_000_000
_END = 4000  # bytes at the end of a log, in which `last_progress` looks
_KEPT = 1_000_000  # bytes at the beginning and at the end of a longer log, which remain when the step has ended

_MARK = "# "
_RUNNING = "# at "
_DOING = "# now "
_CAUSE = "# cause "
_FULL_FAULTS = 3  # faults printed in full
_MOST_NAMES = 12

EVERY = 10.0  # seconds between two lines where the output is no terminal
_IN_TERMINAL, _IN_LOG = 0.2, 1.0  # seconds between two of those


def now_running(what: str) -> None:
    """Write to the log what runs next, such as ``case seed``. Print nothing where the stage runs by hand."""
    if LOGGED in os.environ:
        print(f"{_RUNNING}{what}", flush=True)


def now_doing(what: str) -> None:
    """Write to the log how far the step is, such as ``45 of 200 inputs``, for doit's reporter."""
    print(f"{_DOING}{what}", flush=True)


def log_cause(error: OpmatrixError, root: Path) -> None:
    """Write the cause of an error to the log, for the engine. Without a file of its own, it is at the last line of a
    file in ops/ or native/ that the error passed, such as of a lowering. Print nothing where the stage runs by hand."""
    if LOGGED not in os.environ:
        return
    cause = error.cause or Cause()
    if not cause.file and (at := _line_in_project(error, root)):
        cause = replace(cause, file=at[0], line=at[1])
    if cause != Cause():
        print(_CAUSE + json.dumps(vars(cause)), flush=True)


def _line_in_project(error: BaseException, root: Path) -> tuple[str, int] | None:
    """Return the file and the line of the project that an error passed last, of the first error in its chain."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following and following not in chain:
        chain.append(following)
        following = following.__cause__ or following.__context__
    own = tuple(f"{root / folder}/" for folder in ("ops", "native"))
    for one in reversed(chain):
        for frame, line in reversed([*traceback.walk_tb(one.__traceback__)]):
            if (file := frame.f_code.co_filename).startswith(own):
                return os.path.relpath(file, root), line
    return None


def logged_cause(log: str) -> Cause | None:
    """Return the last argument of `log_cause` in a log, or None."""
    lines = [line for line in log.splitlines() if line.startswith(_CAUSE)]
    try:
        found = Cause(**json.loads(lines[-1].removeprefix(_CAUSE)))
    except (IndexError, ValueError, TypeError):  # a kernel can print such a line, too
        return None
    fields = found.sentence, found.file, found.command, found.begins
    return found if all(isinstance(f, str) for f in fields) and isinstance(found.line, int) else None


def detail(text: str) -> None:
    """Print lines that are in the log but not in the terminal."""
    print("\n".join(f"{_MARK}{line}" for line in text.splitlines()), flush=True)


@contextmanager
def dropped() -> Iterator[None]:
    """Drop what is printed in a step, also by C++; let it through where the stage runs by hand."""
    if LOGGED not in os.environ:
        yield
        return
    with Path(os.devnull).open("wb") as null, _redirected(sys.stdout, 1, null), _redirected(sys.stderr, 2, null):
        yield


@contextmanager
def _redirected(stream: IO[str], descriptor: int, file: IO[bytes]) -> Iterator[None]:
    """Redirect what Python and C++ print to a standard stream."""
    stream.flush()
    outside = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(outside, descriptor)
        os.close(outside)


@contextmanager
def capture_stdout() -> Iterator[None]:
    """Pass standard output, that of C++ too, to `detail`: an exporter that fails first prints a whole graph."""
    with tempfile.TemporaryFile() as file:
        try:
            with _redirected(sys.stdout, 1, file):
                yield
        finally:
            file.seek(0)
            if text := file.read().decode(errors="replace").strip():
                detail(text)


def summarize_faults(faults: Mapping[str, str], *, subject: str, where: str) -> str:
    """Return the first faults in full and one line with the case names of the others; the log gets all in full.

    `faults` maps names of cases, joined with ", ", to messages. `where` is another file with all faults.
    """
    lines, others = list(faults.values()), [name for names in list(faults)[_FULL_FAULTS:] for name in names.split(", ")]
    if not others:
        return "\n".join(lines)
    if logged := LOGGED in os.environ:
        detail("\n".join(lines[_FULL_FAULTS:]))
    cases = "1 more case is" if len(others) == 1 else f"{len(others)} more cases are"
    named = ", ".join(others[:_MOST_NAMES]) + (", ..." if len(others) > _MOST_NAMES else "")
    log = "the log, and " if logged else ""
    return "\n".join([*lines[:_FULL_FAULTS], f"{subject}: {cases} wrong: {named}. In full: {log}{where}"])


def visible_lines(log: str) -> str:
    """Return the lines of a log that are shown in the terminal."""
    return "\n".join(line for line in log.splitlines() if not line.startswith(_MARK))


def last_running(log: str) -> str:
    """Return the last argument of `now_running` in a log, or ""."""
    return next((line.removeprefix(_RUNNING) for line in reversed(log.splitlines()) if line.startswith(_RUNNING)), "")


def last_progress(log: Path, *, seconds: float) -> str:
    """Return the last argument of `now_doing` or `now_running` in the end of the log of a step that began `seconds`
    ago, or "". The log may still be that of an earlier run."""
    try:
        with log.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_mtime < time.time() - seconds:
                return ""
            file.seek(max(0, found.st_size - _END))
            lines = file.read().decode(errors="replace").split("\n")[:-1]  # the last one may be written now
    except OSError:
        return ""
    marks = (_DOING, _RUNNING)
    last = next((line for line in reversed(lines) if line.startswith(marks)), "")
    return last.removeprefix(_DOING).removeprefix(_RUNNING)


def shorten(log: Path) -> None:
    """Cut the middle out of a long log, except the last line of `now_running` in it. Raises OSError."""
    import mmap  # imported here: a run with nothing to do does without

    size = log.stat().st_size
    if size <= 2 * _KEPT:
        return
    end = size - _KEPT
    with log.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            begin = content.rfind(f"\n{_RUNNING}".encode(), 0, end)
            running = content[begin + 1 : begin + 1001].partition(b"\n")[0] if begin >= 0 else b""
            tail = content[end:]
        file.seek(_KEPT)
        file.write(f"\n{_MARK}{end - _KEPT} bytes are left out here\n".encode() + running + b"\n" + tail)
        file.truncate()


def read_log(log: Path) -> str:
    """Return a log that `shorten` has shortened; "" if there is none."""
    try:
        with log.open("rb") as file:
            return file.read(3 * _KEPT).decode(errors="replace")
    except OSError:
        return ""


class Progress:
    """Shows what one piece of work does and how far it is, after `quiet` seconds. A call that shows nothing takes less
    than a microsecond.

    In a step of doit it writes marks into the log, which doit's reporter shows; else it prints to stderr.
    """

    def __init__(
        self, *, quiet: float = 1.0, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self._logged = LOGGED in os.environ
        self._live = not self._logged and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = clock()
        self._next = self._began + (quiet if self._logged or self._live else EVERY)
        self._shown = False

    def show(self, what: str, done: float = 0, total: float = 0) -> None:
        """Show ``what``, such as ``12 of 60 mutants``, with the time that is left if `done` of `total` are given."""
        now = self._clock()
        if now < self._next:
            return
        left = time_left(now - self._began, done, total)
        if self._logged:
            self._next = now + _IN_LOG
            now_doing(what + left)
        elif self._live:
            self._next = now + _IN_TERMINAL
            self._shown = True
            line = f"  {spent(now - self._began)}  {what}{left}"[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
        else:
            self._next = now + EVERY
            print(f"  {spent(now - self._began)}: {what}{left}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Remove the line from the terminal, before another one is printed."""
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=self._stream, flush=True)


@contextmanager
def shown_by_thread(what: Callable[[], str], *, quiet: float) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Show in the block what work in this thread does, where it has no place for calls of `show`. Yields what removes
    the line while something else is printed."""
    progress, ended, printing = Progress(quiet=quiet), Event(), Lock()

    def show() -> None:
        while not ended.wait(_IN_TERMINAL):
            with printing:
                progress.show(what())

    @contextmanager
    def pausing() -> Iterator[None]:
        with printing:
            progress.clear()
            yield

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield pausing
    finally:
        ended.set()
        thread.join()
        progress.clear()


def time_left(seconds: float, done: float, total: float) -> str:
    """Return ``, about 1:20 left``, if `done` of `total` took `seconds`, or "" if that says nothing."""
    return f", about {spent(seconds * (total - done) / done)} left" if 0 < done < total else ""


def spent(seconds: float) -> str:
    """Return ``0:07`` or ``12:30``: minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
