"""The errors that a user can get, each kind with its exit code, and phrases that messages share.

A message states what happened, where, what is allowed, and what to do next. Only `opmatrix.commands` and
`opmatrix.engine` turn errors into exit codes. A traceback means a bug of opmatrix, never a mistake of its user.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# The escape sequences by which compilers and rich set colours (SGR), and EL, "erase in line", which GCC also prints.
_COLOURS = re.compile(r"(\x1b\[[\d;]*m|\x1b\[K)")
_RESET = "\x1b[0m"
LONGEST_LINE = 4000  # characters of a line that is shown; commands that are to be copied fit


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What is wrong, for the last lines of a run and for annotations in CI. The message of the error has the details.

    `sentence` is one line; "" means the first line of the message. `file`, relative to the project's root, and
    `line` are where to look first, "" and 0 if unknown. `command` repeats it and begins with ``python -m opmatrix``; ""
    means the command of the step. `begins` names the function that begins at the line; the fault may be further down.
    """

    sentence: str = ""
    file: str = ""
    line: int = 0
    command: str = ""
    begins: str = ""

    @property
    def where(self) -> str:
        """``native/relu/kernel.h:12``, or only the file, or ""."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def place(self) -> str:
        """``native/relu/kernel.h:12, in the kernel``, or only `where`."""
        return f"{self.where}, in {self.begins}" if self.begins and self.line else self.where


class OpmatrixError(Exception):
    """An error that the user can fix. `of_machine`: `doit doctor` finds it, too. `cause`: what is wrong, where the
    first line of the message does not say it."""

    exit_code = 1
    of_machine = False

    def __init__(self, message: object = "", *, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause

    def __init_subclass__(cls, exit_code: int | None = None, *, of_machine: bool = False) -> None:
        cls.exit_code = cls.exit_code if exit_code is None else exit_code
        cls.of_machine = of_machine


class UsageError(OpmatrixError, exit_code=2):
    """An unknown option, variable, operator, cell or case."""


class SpecError(OpmatrixError, exit_code=3):
    """An invalid declaration or case. The message lists every mistake, one per line."""


class ToolchainError(OpmatrixError, exit_code=5, of_machine=True):
    """No usable compiler, ninja, torch, ONNX Runtime or headers of it."""


class CompileError(OpmatrixError, exit_code=6):
    """The compiler or linker failed, or a library has a symbol that is not allowed."""


class DataError(OpmatrixError, exit_code=7):
    """A case or reference function from which no valid test data can be made."""


class RegisterError(OpmatrixError, exit_code=8):
    """The torch library does not do what the declaration requires."""


class ExportError(OpmatrixError, exit_code=9):
    """A model could not be exported, or a gate rejected it."""


class VerifyError(OpmatrixError, exit_code=10):
    """ONNX Runtime and the expected outputs differ, or a session could not be created."""


class ReportError(OpmatrixError, exit_code=11):
    """At least one cell is neither verified nor declared unsupported."""


class SanitizeError(OpmatrixError, exit_code=12):
    """A sanitizer found a bug in a kernel or a binding, or the compiler has no sanitizer."""


class NoEnvironmentError(OpmatrixError, exit_code=13, of_machine=True):
    """The environment of another torch or ONNX Runtime could not be created."""


class ProbeError(OpmatrixError, exit_code=14):
    """What `doit probe` measures differs from the table of legal cells, or is not measured."""


class DistError(OpmatrixError, exit_code=16):
    """A wheel that cannot be built, or that could not be installed or imported."""


class CompatError(OpmatrixError, exit_code=17):
    """An operator that does not work beyond eager mode, such as in torch.compile."""


class BenchError(OpmatrixError, exit_code=18):
    """`doit bench`: an operator is slower than at a revision, or cannot be timed."""


def stage_exit_codes() -> dict[int, str]:
    """Return the exit codes of ``python -m opmatrix STAGE`` other than 0 and 1, each with what it means."""
    kinds = sorted(OpmatrixError.__subclasses__(), key=lambda kind: kind.exit_code)
    return {kind.exit_code: one_line(kind.__doc__) for kind in kinds if kind.__module__ == __name__}


# The error numbers of a disk that cannot be written: full, over quota, read-only, or damaged.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
REMEDY = "Is the folder writable, and is there space left?"


def disk_fault(error: BaseException) -> str:
    """Return the message for an error of the disk, such as a full one; "" for any other error."""
    if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
        return ""
    import tempfile  # imported here: every command imports this module

    def is_full(folder: str) -> bool:
        """Return whether less than a hundredth of a disk, or of its inodes, is free: what could not be written may be
        removed again."""
        try:
            found = os.statvfs(folder)
        except OSError:
            return False
        return found.f_bavail <= found.f_blocks // 100 or (found.f_files > 0 and found.f_favail <= found.f_files // 100)

    named = error.filename or next(filter(is_full, ("build", tempfile.gettempdir(), ".")), "")
    where = f" '{named}'" if named else ""
    return f"cannot write{where}: {error.strerror}. {REMEDY}"


def is_of_disk(sentence: str) -> bool:
    """Return whether a message is about a disk that cannot be written, also one of a compiler: no file is to blame."""
    return sentence.endswith(REMEDY) or any(os.strerror(number) in sentence for number in _NO_ROOM)


def end_if_unread() -> None:
    """End as the tools of Unix do, by SIGPIPE, if the reader of stdout or stderr has ended, as in `doit list | head`.

    Called for a BrokenPipeError, which may also be of a server that died.
    """
    for stream in (sys.stdout, sys.stderr):
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # which asks for errors alone
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)


def one_line(text: object) -> str:
    """Return a string or the message of an error as one line, with single spaces."""
    return " ".join(str(text).split())


def printable(text: str, *, colours: bool = False) -> str:
    """Escape the control characters of a string as in ``\\x1b``, also those that change the direction of text, and cut
    the middle out of long lines. `colours` keeps colours.

    Call it for every string from outside that is printed: names in a model, the output of a process, error messages of
    libraries. Unescaped, such a string can rename the terminal window, erase earlier lines or imitate another string.
    """
    if len(text) <= LONGEST_LINE and text.isprintable():
        return text
    return "\n".join(_printable_line(line, colours) for line in text.split("\n"))


def _printable_line(line: str, colours: bool) -> str:
    if len(line) > LONGEST_LINE:
        half = LONGEST_LINE // 2
        line = f"{line[:half]} ... {line[-half:]}"
    if line.isprintable():
        return line
    coloured = colours and _COLOURS.search(line)
    pieces = _COLOURS.split(line) if coloured else [line]  # at odd places are colours
    pieces[::2] = ["".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in p) for p in pieces[::2]]
    return "".join(pieces) + (_RESET if coloured else "")


def without_colours(text: str) -> str:
    """Remove the escape sequences of a compiler's colours."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def colours_wanted() -> bool:
    """Return whether an error on stderr is shown in colours: in a terminal, or where the step's log ends in one."""
    return "NO_COLOR" not in os.environ and ("FORCE_COLOR" in os.environ or sys.stderr.isatty())


def print_error(error: object, *, change: Callable[[str], str] = str) -> None:
    """Print an error to stderr, as `printable`; `change` its text first."""
    print(printable(change(str(error)), colours=colours_wanted()), file=sys.stderr, flush=True)
    if isinstance(error, OpmatrixError) and error.of_machine:
        # In a checkout of opmatrix, which has the program run.
        doit = "./run doit" if os.path.isfile("run") else "doit"  # noqa: PTH113 - pathlib takes each command 5 ms
        print(f"More: `{doit} doctor` lists what this machine lacks, with each remedy", file=sys.stderr, flush=True)


def many(count: int, noun: str, several: str = "") -> str:
    """Return ``1 node`` or ``3 nodes``; `several` is a plural without -s."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or f'{noun}s'}"


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest of `allowed`, or ""."""
    return f"; did you mean {near!r}?" if (near := nearest(word, allowed)) else ""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return the one of `allowed` that `word` may be a misspelling of, or ""."""
    return next(iter(difflib.get_close_matches(word, list(allowed), n=1)), "")


def missing(path: object, *, run: str, problem: str = "is missing") -> str:
    """Return the message for a file that another command writes: the problem, and that command."""
    return f"{path} {problem}. Run: {run}"
