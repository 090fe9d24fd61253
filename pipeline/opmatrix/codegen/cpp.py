"""Pieces of generated C++: calls, literals and size expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from opmatrix.declaration.python_source import bracket
from opmatrix.spec import DType

# float16 and bfloat16 have no type of the language before C++23.
CPP_TYPES: Mapping[DType, str] = {
    "float32": "float", "float64": "double", "bool": "bool",
    "int8": "std::int8_t", "int16": "std::int16_t", "int32": "std::int32_t", "int64": "std::int64_t",
    "uint8": "std::uint8_t", "uint16": "std::uint16_t", "uint32": "std::uint32_t", "uint64": "std::uint64_t",
}  # fmt: skip

_OPERATORS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/"}


def call(head: str, arguments: Sequence[str], *, tail: str = "") -> str:
    """Return ``head(a, b)`` followed by `tail`, on several lines where it is long."""
    return bracket(f"{head}(", arguments, f"){tail}", comma="")


def quoted(text: str) -> str:
    """Return `text` as a C++ string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def literal(value: Any, suffix: str = "") -> str:
    """Return a value as C++ has it: 1e-05f, 0.0, 3, true, "text"; `suffix` is that of a float."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, int) else f"{value!r}{suffix}"


def sizes(expression: str | int, known: Mapping[str, str]) -> str:
    """Return a size of `Dims` in C++; `known` has the C++ of each name. Raises ValueError for what is no such size."""
    try:
        return _size(ast.parse(str(expression), mode="eval").body, known)
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no expression of sizes: {error.msg}") from error


def falls(node: ast.AST) -> bool:
    """Return whether an expression has a minus, so that it may come to less than 0."""
    return any(isinstance(part, ast.Sub) for part in ast.walk(node))


def _size(node: ast.expr, known: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value)
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and falls(node.left):
        return f"floor_divide({_size(node.left, known)}, {_size(node.right, known)})"
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (
            f"({_size(side, known)})" if isinstance(side, ast.BinOp) else _size(side, known)
            for side in (node.left, node.right)
        )
        return f"{left} {_OPERATORS[type(node.op)]} {right}"
    raise ValueError(f"{ast.unparse(node)!r} is no size of a required input, no number, and no + - * // of them")
