"""Pieces of generated C++: calls, literals and size expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from opmatrix.declaration.python_source import bracket
from opmatrix.declaration.size_expressions import with_names
from opmatrix.spec import DType

# C++ has no types for float16 and bfloat16 before C++23.
CPP_TYPES: Mapping[DType, str] = {
    "float32": "float", "float64": "double", "bool": "bool",
    "int8": "std::int8_t", "int16": "std::int16_t", "int32": "std::int32_t", "int64": "std::int64_t",
    "uint8": "std::uint8_t", "uint16": "std::uint16_t", "uint32": "std::uint32_t", "uint64": "std::uint64_t",
}  # fmt: skip


def call(head: str, arguments: Sequence[str], *, tail: str = "") -> str:
    """Return ``head(a, b)`` followed by `tail`, on several lines where it is long."""
    return bracket(f"{head}(", arguments, f"){tail}", comma="")


def quoted(text: str) -> str:
    """Return `text` as a C++ string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def literal(value: Any, suffix: str = "") -> str:
    """Return a C++ literal: 1e-05f, 0.0, 3, true, "string"; `suffix` is that of a float."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, int) else f"{value!r}{suffix}"


def sizes(expression: str | int, names: Mapping[str, str]) -> str:
    """Return a size of `Dims` in C++; `names` has the C++ of each name."""
    return ast.unparse(_CppDivision().visit(with_names(expression, names)))


class _CppDivision(ast.NodeTransformer):
    """Replaces // with a division that rounds down in C++ too, where the dividend may be negative."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv):
            return node
        if any(isinstance(part, ast.Sub) for part in ast.walk(node.left)):
            return ast.Call(ast.Name("floor_divide"), [node.left, node.right], [])
        return ast.BinOp(node.left, ast.Div(), node.right)
