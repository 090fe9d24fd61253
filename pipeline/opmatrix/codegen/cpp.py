"""Pieces of C++ text, laid out as clang-format would. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opmatrix.spec import DType

WIDTH = 120

# float16 and bfloat16 have no type of the language before C++23.
CPP_TYPES: Mapping[DType, str] = {
    "float32": "float", "float64": "double", "bool": "bool",
    "int8": "std::int8_t", "int16": "std::int16_t", "int32": "std::int32_t", "int64": "std::int64_t",
    "uint8": "std::uint8_t", "uint16": "std::uint16_t", "uint32": "std::uint32_t", "uint64": "std::uint64_t",
}  # fmt: skip

_OPERATORS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/"}


def call(head: str, arguments: Sequence[str], *, indent: int = 0, tail: str = "") -> str:
    """Return ``head(a, b)`` followed by `tail`, filled to the width and aligned behind the bracket.

    `indent` is the column of `head`; one more is kept free for a semicolon.
    """
    margin = indent + len(head) + 1
    lines = [""]
    arguments = list(_labelled(arguments))
    for position, argument in enumerate(arguments):
        last = position == len(arguments) - 1
        piece = argument + (")" if last else ",")
        room = WIDTH - margin - len(lines[-1]) - (1 if lines[-1] else 0) - (max(1, len(tail)) if last else 0)
        if lines[-1] and len(piece) > room:
            lines.append(piece)
        else:
            lines[-1] += (" " if lines[-1] else "") + piece
    return f"{head}(" + f"\n{' ' * margin}".join(lines) + (")" if not arguments else "") + tail


def _labelled(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments, each behind the label that it has, if any: a text that ends with an equals sign."""
    label = ""
    for argument in arguments:
        if argument.endswith('= "'):
            label += f"{argument}, "
        else:
            yield label + argument
            label = ""


def braces(head: str, items: Sequence[str], *, indent: int = 0) -> str:
    """Return ``head{a, b}``, on one line where it fits, else with one item per line."""
    line = f"{head}{{{', '.join(items)}}}"
    if indent + len(line) < WIDTH:
        return line
    return "\n".join([f"{head}{{", *(f"{' ' * (indent + 4)}{item}," for item in items), f"{' ' * indent}}}"])


def constant(name: str, value: str) -> str:
    """Return ``name = value``, broken behind the sign where it is too long for one line."""
    line = f"{name} = {value}"
    return line if len(line) < WIDTH else f"{name} =\n    {value}"


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
