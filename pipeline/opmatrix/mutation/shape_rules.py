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
    names = _inputs(source)
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
            yield from (source.replaced("shape", value, f'"{name}"') for name in names if name != value.value)


def _sizes(source: Source, sizes: list[ast.expr]) -> Iterator[Change]:
    for size in sizes:
        if isinstance(size, ast.Constant) and isinstance(size.value, int):
            yield source.replaced("shape", size, str(size.value + 1))
        elif isinstance(size, ast.Constant) and isinstance(size.value, str) and size.value != "...":
            yield source.replaced("shape", size, f'"{size.value} + 1"')


def _inputs(source: Source) -> list[str]:
    """Return the names of the required inputs of the declaration."""
    calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and source.of(n.func) == "Input"]
    given = [{k.arg: k.value for k in call.keywords} for call in calls]
    required = [g for g in given if not {"optional", "variadic"} & g.keys() and isinstance(g.get("name"), ast.Constant)]
    return [str(name.value) for g in required if isinstance(name := g["name"], ast.Constant)]


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
