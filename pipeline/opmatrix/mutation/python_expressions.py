"""Mutants of Python's expressions and statements: comparison, arithmetic, condition, constant, sign, dropped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opmatrix.mutation.cpp_change import Change
from opmatrix.mutation.python_change import Source

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")), ast.LtE: ("<=", ("<", ">=")), ast.Gt: (">", (">=", "<")), ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.Is: ("is", ("is not",)), ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",)),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.MatMult: ("@", "*"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip


def comparison(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for left, by, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            old, others = _COMPARISONS[type(by)]
            yield from (source.operator("comparison", left, right, old, new) for new in others)


def arithmetic(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield source.operator("arithmetic", node.left, node.right, *_ARITHMETIC[type(node.op)])
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        old, new = _ARITHMETIC[type(node.op)]
        yield source.operator("arithmetic", node.target, node.value, f"{old}=", f"{new}=")


def condition(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield source.replaced("condition", node.test, "False")
        if not isinstance(node, ast.While):
            yield source.replaced("condition", node.test, "True")
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield source.operator("condition", node.values[0], node.values[1], old, new)
        for one in node.values:
            yield source.replaced("condition", node, f"({source.of(one)})")


def constant(source: Source, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield source.replaced("constant", node, str(not node.value))
    elif isinstance(node.value, int):
        if not (node.value == 1 and source.is_option(node)):
            yield source.replaced("constant", node, str(node.value + 1))
        if node.value:
            yield source.replaced("constant", node, str(node.value - 1))
    elif isinstance(node.value, float):
        yield source.replaced("constant", node, "0.0" if node.value else "1.0")
        if node.value:
            yield source.replaced("constant", node, repr(2 * node.value))


def sign(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield source.replaced("sign", node, f"({source.of(node.operand)})")
    if isinstance(node, ast.Assign | ast.Return) and isinstance(node.value, ast.BinOp):
        yield source.replaced("sign", node.value, f"-({source.of(node.value)})")


def dropped(source: Source, node: ast.AST) -> Iterator[Change]:
    """A statement that is left out: a call, or a name that gets another value."""
    if isinstance(node, ast.Expr | ast.AugAssign):
        yield source.replaced("dropped", node, "pass")
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(name := node.targets[0], ast.Name):
        again = any(isinstance(used, ast.Name) and used.id == name.id for used in ast.walk(node.value))
        if again:
            yield source.replaced("dropped", node, "pass")
