"""The log of a step: mark which case runs now, so that a crash names it, write details that only the log shows, and the
cause of a failure for the last lines of a run.

A line that begins with ``# `` is in the log and not in the terminal. `opmatrix.engine.step_failure` reads the log.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

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
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    outside = [os.dup(number) for number in (1, 2)]
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(null, number)
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        for number, kept in zip((1, 2), outside, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        os.close(null)


@contextmanager
def capture_stdout() -> Iterator[None]:
    """Pass standard output, that of C++ too, to `detail`: an exporter that fails first prints a whole graph."""
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
