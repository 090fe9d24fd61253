"""Mutants of the shape rules of a declaration: of `Output(shape=...)` in a spec.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opmatrix.mutation.cpp_change import Change
from opmatrix.mutation.python_change import Source


def shape(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another size, another input, one axis less."""
    if not isinstance(node, ast.Call) or source.of(node.func) != "Output":
        return
    for keyword in node.keywords:
        if keyword.arg == "shape" and isinstance(keyword.value, ast.Call):
            yield from _rule(source, keyword.value)


def _rule(source: Source, rule: ast.Call) -> Iterator[Change]:
    shapes = _inputs(source)
    for keyword in rule.keywords:
        value = keyword.value
        if keyword.arg == "dims" and isinstance(value, ast.Tuple):
            yield from _sizes(source, value.elts)
            if len(value.elts) > 1:
                yield source.replaced("shape", value, _tuple([source.of(part) for part in value.elts[:-1]]))
        elif keyword.arg == "rank" and isinstance(value, ast.Constant):
            yield source.replaced("shape", value, str(int(str(value.value)) + 1))
        elif keyword.arg == "replace" and isinstance(value, ast.Dict):
            yield from _sizes(source, [part for part in value.values if source.of(part) != "None"])
        elif keyword.arg == "input" and isinstance(value, ast.Constant):
            others = [name for name, shape in shapes.items() if shape != shapes.get(str(value.value))]
            yield from (source.replaced("shape", value, f'"{name}"') for name in others)


def _sizes(source: Source, sizes: list[ast.expr]) -> Iterator[Change]:
    for size in sizes:
        if isinstance(size, ast.Constant) and isinstance(size.value, int):
            yield source.replaced("shape", size, str(size.value + 1))
        elif isinstance(size, ast.Constant) and isinstance(size.value, str) and size.value != "...":
            yield source.replaced("shape", size, f'"{size.value} + 1"')


def _inputs(source: Source) -> dict[str, str]:
    """Return the required inputs of the declaration, each with the first input that has its shape."""
    found: dict[str, str] = {}
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call) and source.of(call.func) == "Input":
            given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
            if not {"optional", "variadic"} & given.keys() and isinstance(name := given.get("name"), str):
                found[name] = found.get(str(given.get("same_as")), name)
    return found


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
