"""Pieces of generated C++: types, calls and literals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from opmatrix.signature.python_source import bracket
from opmatrix.signature.signature import to_float32
from opmatrix.spec import DType

CPP_TYPES: Mapping[DType, str] = {
    "float16": "Half", "bfloat16": "BFloat16", "float32": "float", "float64": "double", "bool": "bool",
    "string": "std::string",
    "float8_e4m3fn": "Float8E4M3FN", "float8_e5m2": "Float8E5M2",
    "float8_e4m3fnuz": "Float8E4M3FNUZ", "float8_e5m2fnuz": "Float8E5M2FNUZ",
    "int4": "Int4", "uint4": "UInt4",
    "int8": "std::int8_t", "int16": "std::int16_t", "int32": "std::int32_t", "int64": "std::int64_t",
    "uint8": "std::uint8_t", "uint16": "std::uint16_t", "uint32": "std::uint32_t", "uint64": "std::uint64_t",
}  # fmt: skip

_NUMBER_HEADERS: Mapping[str, frozenset[DType]] = {
    "float8.h": frozenset({"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}),
    "half.h": frozenset({"float16", "bfloat16"}),
    "int4.h": frozenset({"int4", "uint4"}),
}


def number_headers(dtypes: Set[str]) -> tuple[str, ...]:
    """Return the headers of opmatrix/ that have the C++ types of dtypes."""
    return tuple(header for header, types in _NUMBER_HEADERS.items() if types & dtypes)


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
