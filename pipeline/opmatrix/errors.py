"""Every error that a user can meet, each kind with its exit code.

A message says what happened, where, what is allowed, and what to do next. Only `opmatrix.cli` and `opmatrix.engine`
turn errors into exit codes; a traceback is printed for a fault of opmatrix itself, never for a mistake of its user.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OpmatrixError(Exception):
    """A mistake or a missing thing that the user can fix."""

    exit_code = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        cls.exit_code = cls.exit_code if exit_code is None else exit_code


class UsageError(OpmatrixError, exit_code=2):
    """An unknown option, variable, operator, cell or case."""


class SpecError(OpmatrixError, exit_code=3):
    """A declaration or a case that cannot hold. Carries every mistake that was found, one per line."""


class SdkError(OpmatrixError, exit_code=4):
    """Headers that the compiler needs are missing or not the pinned ones."""


class ToolchainError(OpmatrixError, exit_code=5):
    """No usable compiler, ninja, torch or ONNX Runtime."""


class CompileError(OpmatrixError, exit_code=6):
    """The compiler or the linker refused, or a library needs or shows symbols that it must not."""


class DataError(OpmatrixError, exit_code=7):
    """A case or a reference that gives no usable test data."""


class RegisterError(OpmatrixError, exit_code=8):
    """The torch library does not hold what the declaration says."""


class ExportError(OpmatrixError, exit_code=9):
    """A model that could not be exported, or that a gate refused."""


class VerifyError(OpmatrixError, exit_code=10):
    """ONNX Runtime and the expected outputs disagree, or a session could not be made."""


class ReportError(OpmatrixError, exit_code=11):
    """At least one cell is neither verified nor declared unsupported."""


class SanitizeError(OpmatrixError, exit_code=12):
    """A sanitizer found a fault in a kernel or a binding, or there is no sanitizer."""


class NoEnvironmentError(OpmatrixError, exit_code=13):
    """The environment of another torch or ONNX Runtime could not be made."""


class ProbeError(OpmatrixError, exit_code=14):
    """What was measured of a torch or an ONNX Runtime differs from what the table of legal cells says."""


class DistError(OpmatrixError, exit_code=16):
    """A wheel that cannot be made, or that nobody could use."""


def one_line(text: object) -> str:
    """Return a string, or the message of an error, as one line: every run of white space is one space."""
    return " ".join(str(text).split())


def many(count: int, noun: str) -> str:
    """Return ``1 node`` or ``3 nodes``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest of `allowed`, or nothing."""
    near = difflib.get_close_matches(found, list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def missing(path: object, *, run: str, problem: str = "is missing") -> str:
    """Return the message for a file that another command writes: what is wrong with it, and that command."""
    return f"{path} {problem}. Run: {run}"
