"""Mutants of what an operator has in Python: lowerings, gradients, operators and fake kernels, and shape rules."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from opmatrix.addons.mutate import python
from opmatrix.addons.mutate.cpp_types import Change
from opmatrix.addons.mutate.mutant import Mutant, Part, numbered
from opmatrix.addons.mutate.python import Operator, Source


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
                sizes = [source.of(part) for part in value.elts[:-1]]
                yield source.replaced(value, f"({', '.join(sizes)}{',' * (len(sizes) == 1)})")
        elif keyword.arg == "rank" and isinstance(value, ast.Constant):
            yield source.replaced(value, str(int(str(value.value)) + 1))
        elif keyword.arg == "replace" and isinstance(value, ast.Dict):
            yield from _sizes(source, [part for part in value.values if source.of(part) != "None"])
        elif keyword.arg == "input" and isinstance(value, ast.Constant):
            others = [name for name, shape in shapes.items() if shape != shapes.get(str(value.value))]
            yield from (source.replaced(value, f'"{name}"') for name in others)


def _sizes(source: Source, sizes: list[ast.expr]) -> Iterator[Change]:
    for size in sizes:
        if isinstance(size, ast.Constant) and isinstance(size.value, int):
            yield source.replaced(size, str(size.value + 1))
        elif isinstance(size, ast.Constant) and isinstance(size.value, str) and size.value != "...":
            yield source.replaced(size, f'"{size.value} + 1"')


def _inputs(source: Source) -> dict[str, str]:
    """Return the required inputs of the declaration, each with the first input that has its shape."""
    inputs: dict[str, str] = {}
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call) and source.of(call.func) == "Input":
            given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
            if not {"optional", "variadic"} & given.keys() and isinstance(name := given.get("name"), str):
                inputs[name] = inputs.get(str(given.get("same_as")), name)
    return inputs


OPERATORS = (
    python.zeros, python.one_dtype, python.fake, shape, python.attribute, python.swapped, python.argument,
    python.function, python.dtype, python.dropped, python.condition, python.comparison, python.arithmetic,
    python.constant, python.sign,
)  # fmt: skip
ALL: Mapping[str, Operator] = {operator.__name__: operator for operator in OPERATORS}
"""The operators of mutation, by the kind of their mutants."""
NO_DEFAULTS: Mapping[str, str] = MappingProxyType({})
PARTS: Mapping[str, Part] = {"spec.py": "shape", "lowering.py": "lowering", "torch_op.py": "torch_op"}
_PLUMBING = ("define",)  # registers; which branch runs depends on the version of torch


def python_mutants(path: str, source: str, defaults: Mapping[str, str] = NO_DEFAULTS) -> list[Mutant]:
    """Return the mutants of a spec.py, lowering.py or torch_op.py, in its order.

    Of a spec.py only the shape rules of outputs are mutated. `defaults` has a Python value for the name of each
    attribute.
    """
    part = PARTS[PurePosixPath(path).name]
    tree = ast.parse(source)
    code = Source(text=source, tree=tree, defaults=defaults)
    nodes = [*_walk(tree, outside="SPEC" if part == "shape" else "")]
    return numbered(
        Mutant(
            path=path,
            kind=kind,
            function=function,
            line=code.line(change.start),
            start=change.start,
            end=change.end,
            before=code.between(change.start, change.end),
            after=change.after,
            context=code.context(node if part == "shape" and isinstance(node, ast.expr) else statement, change),
            part=part,
        )
        for kind, mutate in ALL.items()
        for function, statement, node in nodes
        if kind in _kinds(part, function)
        for change in mutate(code, node)
    )


def _kinds(part: Part, function: str) -> Collection[str]:
    if part == "shape":
        return {"shape"}
    of_both = ALL.keys() - {"shape", "zeros", "one_dtype", "fake"}
    if part == "lowering":
        return of_both
    return of_both | ({"fake"} if function.split(".")[0] == "fake" else {"zeros", "one_dtype"})


def _walk(tree: ast.Module, *, outside: str) -> Iterator[tuple[str, ast.stmt, ast.AST]]:
    """Yield each node that can be mutated, with its function and its statement: no annotations, docstrings, imports."""
    waiting: list[tuple[str, ast.AST | None, ast.AST]] = [(outside, None, node) for node in reversed(tree.body)]
    while waiting:
        function, statement, node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.arguments | ast.Raise | ast.JoinedStr | ast.ClassDef):
            continue
        if isinstance(node, ast.FunctionDef):
            if node.name in _PLUMBING:
                continue
            function = f"{function}.{node.name}" if function else node.name
            waiting += [(function, None, child) for child in reversed(node.body)]
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        statement = node if isinstance(node, ast.stmt) else statement
        assert isinstance(statement, ast.stmt)
        yield function, statement, node
        children = [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "annotation", None)]
        waiting += [(function, statement, child) for child in reversed(children)]
