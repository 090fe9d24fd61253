"""Size expressions such as ``"2*groups*KH"``: their terms, their values, and the code that computes them.

A term is what an expression computes with. Its key is its text: a name (``N``, ``groups``), an item of an attribute
(``stride[0]``), a size of an input (``x.shape[dim]``, ``x.shape[-1]``), the rank of an input (``x.rank``), or the
product of the sizes of "..." (``prod(...)``).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

FURTHER = "..."
PRODUCT = "prod(...)"
LONGEST = 200
"""Characters of an expression, at most: its syntax tree is visited recursively."""
GREATEST = 2**31 - 1
"""The greatest number in an expression, so that products of a few of them fit an int64."""
Size = int | str | None
"""A size: a number, the name of a dynamic axis of a model, or None where nothing is known."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term. `of` is the name of an input or attribute, `at` an axis or index, or the attribute that names the axis.

    A "name" is a size, a rank or an attribute: the declaration says which.
    """

    key: str
    kind: Literal["name", "item", "size", "rank", "product"]
    of: str = ""
    at: int | str = 0


@lru_cache(maxsize=1024)
def parse(expression: str | int) -> ast.expr:
    """Return the syntax tree, which must not be changed. Raises SyntaxError."""
    if len(text := str(expression)) > LONGEST or "\0" in text:
        raise SyntaxError(f"allowed: at most {LONGEST} characters, none of them null")
    return ast.parse(text, mode="eval").body


def term_of(node: ast.expr) -> Term | None:
    """Return the term that a node of a syntax tree is, or None."""
    match node:
        case ast.Name(id=name):
            return Term(key=name, kind="name", of=name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as index)):
            return Term(key=f"{name}[{index}]", kind="item", of=name, at=index)
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=axis):
            at = axis.id if isinstance(axis, ast.Name) else _whole(axis)
            return None if at is None else Term(key=f"{name}.shape[{at}]", kind="size", of=name, at=at)
        case ast.Attribute(value=ast.Name(id=name), attr="rank"):
            return Term(key=f"{name}.rank", kind="rank", of=name)
        case ast.Call(func=ast.Name(id="prod"), args=[ast.Constant(value=value)], keywords=[]) if value is ...:
            return Term(key=PRODUCT, kind="product")
    return None


def _whole(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
    return None


@lru_cache(maxsize=1024)
def terms(expression: str | int) -> tuple[Term, ...]:
    """Return the terms of an expression, each once, in order. Raises SyntaxError."""
    found: dict[str, Term] = {}

    def visit(node: ast.expr) -> None:
        if (term := term_of(node)) is not None:
            found.setdefault(term.key, term)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    visit(child)

    visit(parse(expression))
    return tuple(found.values())


def replace_terms(expression: str | int, code: Callable[[Term], ast.expr]) -> ast.expr:
    """Return a size expression in which each term is replaced."""

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            term = term_of(node) if isinstance(node, ast.expr) else None
            if term is not None:
                return code(term)
            return ast.NodeTransformer.generic_visit(self, node)

    replaced = Replace().visit(ast.parse(str(expression), mode="eval").body)
    assert isinstance(replaced, ast.expr)
    return replaced


def subtracts(node: ast.expr) -> bool:
    """Return whether a syntax tree can have a negative value: whether it has a minus, outside its terms."""
    if term_of(node) is not None:
        return False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return True
    return any(subtracts(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def evaluate(node: ast.expr, value: Callable[[Term], Size]) -> Size:
    """Return the value of a syntax tree, None where that of a term is no number; of a term alone, what `value` returns.

    Raises ValueError for what is no size expression, and ZeroDivisionError.
    """
    if (term := term_of(node)) is not None:
        return value(term)
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = evaluate(operand, value)
            return -found if isinstance(found, int) else None
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = evaluate(left, value), evaluate(right, value)
            known = isinstance(first, int) and isinstance(second, int)
            return _OPERATORS[type(op)](first, second) if known else None  # type: ignore[arg-type]  # they are ints
    raise ValueError(f"{ast.unparse(node)!r} is not an expression of sizes; allowed: names, numbers and + - * //")


def why_no_size(expression: str | int, positive: Callable[[Term], bool] = lambda term: False) -> str | None:
    """Return why no shape can have this expression, or None: C++ and Python must compute the same for every size.

    `positive` is whether a term is always 1 or more, so that an expression may divide by it.
    """
    if isinstance(expression, int):
        return None if 0 <= expression <= GREATEST else f"allowed: a number from 0 to {GREATEST}"
    if expression.isidentifier():  # the most frequent kind; every doit command calls this
        return None
    try:
        node = parse(expression)
    except SyntaxError as error:
        return f"no expression: {error.msg}"
    if why := _why_none(node, positive):
        return why
    value = None if terms(expression) else evaluate(node, lambda term: None)
    return f"it is {value}, allowed: a size, from 0 on" if isinstance(value, int) and value < 0 else None


def _why_none(node: ast.expr, positive: Callable[[Term], bool]) -> str | None:
    if term_of(node) is not None:
        return None
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return None if number <= GREATEST else f"it has the number {number}, allowed: numbers up to {GREATEST}"
        case ast.BinOp(op=ast.FloorDiv(), right=right) if not _positive(right, positive):
            allowed = "by a number from 1 on, or an attribute whose minimum is 1 or more"
            return f"it divides by {ast.unparse(right)!r}, allowed: {allowed}"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right=right):
            return _why_none(left, positive) or _why_none(right, positive)
    return f"{ast.unparse(node)!r} is none of: names of sizes, whole numbers, and + - * // of them"


def _positive(node: ast.expr, positive: Callable[[Term], bool]) -> bool:
    if (term := term_of(node)) is not None:
        return positive(term)
    match node:
        case ast.Constant(value=int() as number):
            return number > 0
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _positive(left, positive) and _positive(right, positive)
    return False


def solve(expression: str, name: str, total: str, positive: Callable[[Term], bool]) -> str | None:
    """Return the expression of `name` that follows from ``expression == total``, or None where it cannot be inverted.

    ``solve("32*k", "k", "x.shape[0]")`` is "x.shape[0] // 32": it is right only if 32 divides the size.
    """
    node, found = parse(expression), parse(total)
    while term_of(node) is None:
        if not isinstance(node, ast.BinOp):
            return None
        if sum(_has(side, name) for side in (node.left, node.right)) != 1:
            return None
        inside, other = (node.left, node.right) if _has(node.left, name) else (node.right, node.left)
        match node.op:
            case ast.Add():
                found = ast.BinOp(found, ast.Sub(), other)
            case ast.Sub() if inside is node.left:
                found = ast.BinOp(found, ast.Add(), other)
            case ast.Sub():
                found = ast.BinOp(other, ast.Sub(), found)
            case ast.Mult() if _positive(other, positive):
                found = ast.BinOp(found, ast.FloorDiv(), other)
            case _:
                return None
        node = inside
    return ast.unparse(found)


def _has(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
