"""Pieces of generated C++: calls, literals and size expressions."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from opmatrix.signature.python_source import bracket
from opmatrix.signature.signature import to_float32
from opmatrix.sizes.expressions import Term
from opmatrix.sizes.rules import around, code, further_input
from opmatrix.spec import DType, Input, OpSpec

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
        value = {0.0: math.copysign(0.0, value), math.inf: math.inf, -math.inf: -math.inf}.get(_rounded(value), value)
    if not math.isfinite(value):
        sign = "-" if math.copysign(1, value) < 0 else ""
        return f"{sign}__builtin_inf{suffix}()" if math.isinf(value) else f'{sign}__builtin_nan{suffix}("")'
    return f"{value!r}{suffix}"


def _rounded(value: float) -> float:
    """Return a float rounded to 32 bits."""
    try:
        return to_float32(value)
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True, kw_only=True)
class SizeCode:
    """The C++ of size expressions: `shape` returns that of the sizes of an input, `attribute` that of an attribute."""

    spec: OpSpec
    shape: Callable[[str], str]
    attribute: Callable[[str], str]

    def __call__(self, expression: str | int) -> str:
        """Return the C++ of an expression."""
        return ast.unparse(_CppDivision().visit(code(self.spec, expression, self.term)))

    def term(self, term: Term) -> str:
        """Return the C++ of a term that is no name of a size."""
        if term.kind == "product":
            return f"numel({self.further()})"
        if term.kind == "rank":
            return f"{self.shape(term.of)}.rank"
        if term.kind == "size":
            return self.axis(term.of, term.at)
        return self.attribute(term.of) + (f"[{term.at}]" if term.kind == "item" else "")

    def axis(self, name: str, at: int | str) -> str:
        """Return the size of an axis: a number, negative from the back, or the attribute that names it."""
        sizes = self.shape(name)
        if isinstance(at, str):
            return f"axis_size({sizes}, {self.attribute(at)})"
        return f"{sizes}[{at}]" if at >= 0 else f"{sizes}[{sizes}.rank - {-at}]"

    def further(self) -> str:
        """Return the sizes of "..."."""
        part = further_input(self.spec)
        assert part is not None
        return self.further_of(part)

    def further_of(self, part: Input) -> str:
        """Return the sizes of the "..." of an input."""
        front, back = around(part)
        return f"sizes_between({self.shape(part.name)}, {front}, {back})"


SIZE_FUNCTIONS = ("floor_divide(", "axis_size(", "sizes_between(", "AnyRank ")
"""The functions and types of sizes.h that C++ with sizes may contain."""


class _CppDivision(ast.NodeTransformer):
    """Replaces // with a division that rounds down in C++ too, where the dividend may be negative."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv):
            return node
        if any(isinstance(part, ast.Sub) for part in ast.walk(node.left)):
            return ast.Call(ast.Name("floor_divide"), [node.left, node.right], [])
        return ast.BinOp(node.left, ast.Div(), node.right)
