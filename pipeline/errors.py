"""Every error that a user can meet, each kind with its exit code.

A message says what happened, where, what is allowed, and what to do next. Errors become exit codes at the rims alone,
`pipeline.cli` and `pipeline.runner`; a traceback is shown for a fault of opmatrix itself, never for a mistake of its
user.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OpmatrixError(Exception):
    """A mistake or a missing thing that its user can mend."""

    exit_code = 1


class UsageError(OpmatrixError):
    """An unknown option, variable, operator, cell or case."""

    exit_code = 2


class SpecError(OpmatrixError):
    """A declaration or a case that cannot hold. Carries every mistake that was found, one per line."""

    exit_code = 3


class SdkError(OpmatrixError):
    """Headers that the compiler needs are missing or not the pinned ones."""

    exit_code = 4


class ToolchainError(OpmatrixError):
    """No usable compiler, ninja, torch or ONNX Runtime."""

    exit_code = 5


class CompileError(OpmatrixError):
    """The compiler or the linker refused, or a library needs or shows symbols that it must not."""

    exit_code = 6


class DataError(OpmatrixError):
    """A case or a reference that gives no usable test data."""

    exit_code = 7


class RegisterError(OpmatrixError):
    """The torch library does not hold what the declaration says."""

    exit_code = 8


class ExportError(OpmatrixError):
    """A model that could not be exported, or that a gate refused."""

    exit_code = 9


class VerifyError(OpmatrixError):
    """ONNX Runtime and the expected outputs disagree, or a session could not be made."""

    exit_code = 10


class ReportError(OpmatrixError):
    """At least one cell is neither verified nor declared unsupported."""

    exit_code = 11


class SanitizeError(OpmatrixError):
    """A sanitizer found a fault in a kernel or a binding, or there is no sanitizer."""

    exit_code = 12


class NoEnvironmentError(OpmatrixError):
    """The environment of another torch or ONNX Runtime could not be made."""

    exit_code = 13


class ProbeError(OpmatrixError):
    """What was measured of a torch or an ONNX Runtime differs from what the table of legal cells says."""

    exit_code = 14


class DistError(OpmatrixError):
    """A wheel that cannot be made, or that nobody could use."""

    exit_code = 16


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
