"""Mutants of what an operator has in Python: lowerings, gradients, operators and fake kernels, and shape rules."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from opmatrix.mutation import python_calls, python_expressions, shape_rules
from opmatrix.mutation.mutant import Mutant, Part, numbered
from opmatrix.mutation.python_change import Operator, Source

KINDS: Mapping[str, Operator] = {
    "attribute": python_calls.attribute,
    "swapped": python_calls.swapped,
    "argument": python_calls.argument,
    "function": python_calls.function,
    "dtype": python_calls.dtype,
    "dropped": python_expressions.dropped,
    "condition": python_expressions.condition,
    "comparison": python_expressions.comparison,
    "arithmetic": python_expressions.arithmetic,
    "constant": python_expressions.constant,
    "sign": python_expressions.sign,
}
"""The operators of mutation for lowering.py and torch_op.py, by the kind of their mutants."""
RESULTS: Mapping[str, Operator] = {"zeros": python_calls.zeros, "one_dtype": python_calls.one_dtype}
"""Those of what gradients and operators in Python return."""
FAKES: Mapping[str, Operator] = {"fake": python_calls.fake}
"""Those of what fake kernels return, whose values do not count."""
SHAPES: Mapping[str, Operator] = {"shape": shape_rules.shape}
"""Those of a declaration."""

ALL = {**RESULTS, **FAKES, **SHAPES, **KINDS}
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
            kind=change.kind,
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
    if part in ("shape", "lowering"):
        return SHAPES if part == "shape" else KINDS
    return {*KINDS, *(FAKES if function.split(".")[0] == "fake" else RESULTS)}


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
