"""Pieces of generated C++: types, calls and literals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from opmatrix.project.dtypes import DTYPES, FACTS
from opmatrix.signature.python_source import bracket
from opmatrix.signature.signature import to_float32
from opmatrix.spec import DType

CPP_TYPES: Mapping[DType, str] = {dtype: FACTS[dtype].cpp for dtype in DTYPES}


def number_headers(dtypes: Set[str]) -> tuple[str, ...]:
    """Return the headers of opmatrix/ that have the C++ types of dtypes."""
    return tuple(sorted({FACTS[dtype].header for dtype in FACTS.keys() & dtypes} - {""}))


def call(head: str, arguments: Sequence[str], *, tail: str = "") -> str:
    """Return ``head(a, b)`` followed by `tail`, on several lines where it is long."""
    return bracket(f"{head}(", arguments, f"){tail}", comma="")


def quoted(text: str) -> str:
    """Return `text` as a C++ string literal of its bytes in UTF-8, in ASCII alone.

    Three octal digits end an escape whatever follows, and no "??" is left of which C++17 makes a trigraph.
    """
    shown = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
    pieces = (
        shown.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode("utf-8", "surrogateescape")
    )
    return '"' + "".join(pieces).replace("??", "?\\?") + '"'


def literal(value: Any, suffix: str = "") -> str:
    """Return a C++ literal: 1e-05f, 0.0, 3, true, "string"; `suffix` is that of a float, "f" for one of 32 bits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):  # of 2**63 without its sign there is no literal
        return "INT64_MIN" if value == -(2**63) else str(value)
    if suffix:  # g++ warns of what rounds to zero or to infinity
        try:
            rounded = to_float32(value)
        except OverflowError:
            rounded = math.copysign(math.inf, value)
        value = {0.0: math.copysign(0.0, value), math.inf: math.inf, -math.inf: -math.inf}.get(rounded, value)
    if not math.isfinite(value):
        sign = "-" if math.copysign(1, value) < 0 else ""
        return f"{sign}__builtin_inf{suffix}()" if math.isinf(value) else f'{sign}__builtin_nan{suffix}("")'
    return f"{value!r}{suffix}"
