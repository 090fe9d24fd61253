"""Size expressions of `Dims`: where the sizes come from, their values, and which expressions are allowed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping

from opmatrix.declaration.torch_signature import is_required
from opmatrix.spec import Attribute, AttributeValue, Input, OpSpec

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def named_sizes(shapes: Iterable[tuple[Input, tuple[int, ...]]]) -> dict[str, int]:
    """Return the size for each name of `Input.dims`: the first one that the shapes have."""
    found: dict[str, int] = {}
    for part, shape in shapes:
        for dim, size in zip(part.dims or (), shape, strict=False):
            if isinstance(dim, str) and dim != "...":
                found.setdefault(dim, size)
    return found


def size_owners(spec: OpSpec) -> dict[str, tuple[str, int]]:
    """Return, for each name of `Input.dims`, the first required input and axis of that size."""
    found: dict[str, tuple[str, int]] = {}
    for part in filter(is_required, spec.inputs):
        for axis, dim in enumerate(part.dims or ()):
            if isinstance(dim, str) and dim != "...":
                found.setdefault(dim, (part.name, axis))
    return found


def size_attributes(spec: OpSpec) -> dict[str, Attribute]:
    """Return the attributes that `Dims` can name: integers >= 0 of the node, without those that share a size's name."""
    taken = {dim for part in spec.inputs for dim in part.dims or ()}
    return {
        a.name: a
        for a in spec.attributes
        if a.kind == "int" and not a.torch_only and a.minimum is not None and a.minimum >= 0 and a.name not in taken
    }


def attribute_sizes(spec: OpSpec, values: Mapping[str, AttributeValue]) -> dict[str, int]:
    """Return the values of the attributes that `Dims` can name, from `values` or by default."""
    found = {name: values.get(name, a.default) for name, a in size_attributes(spec).items()}
    return {name: int(value) for name, value in found.items() if isinstance(value, int)}


def size(expression: str | int, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression such as ``"2*N + 1"``.

    Allowed are names, integers, parentheses and ``+ - * //``. Raises ValueError for anything else, an unknown name,
    a division by zero and a negative size.
    """
    found = value(expression, sizes)
    if found < 0:
        raise ValueError(f"{expression!r} is {found} with {dict(sizes)}")
    return found


def value(expression: str | int, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression, which may be negative. Raises ValueError as `size` does."""
    if isinstance(expression, int):
        return expression
    try:
        return _evaluate(ast.parse(expression, mode="eval").body, sizes)
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no expression of sizes") from error
    except KeyError as error:
        raise ValueError(f"no input that is there has the size {error} of {expression!r}") from error
    except ZeroDivisionError as error:
        raise ValueError(f"{expression!r} divides by zero with {dict(sizes)}") from error


def with_names(expression: str | int, names: Mapping[str, str]) -> ast.expr:
    """Return a size expression in which each name is replaced with the code that `names` has for it."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(names[node.id], mode="eval").body

    replaced: ast.expr = Replace().visit(ast.parse(str(expression), mode="eval").body)
    return replaced


def why_no_size(expression: str | int) -> str | None:
    """Return why `Dims` cannot have this expression, or None: C++ and Python must compute the same for every size."""
    if isinstance(expression, int):
        return None if expression >= 0 else "allowed: a number from 0 on"
    if expression.isidentifier():  # the most frequent kind; every doit command calls this
        return None
    try:
        return _why_none(ast.parse(expression, mode="eval").body)
    except SyntaxError as error:
        return f"no expression: {error.msg}"


def _why_none(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return None
        case ast.Name():
            return None
        case ast.BinOp(op=ast.FloorDiv(), right=right) if not _positive(right):
            return f"it divides by {ast.unparse(right)!r}, allowed: by a number from 1 on"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right=right):
            return _why_none(left) or _why_none(right)
    return f"{ast.unparse(node)!r} is none of: names of sizes, whole numbers, and + - * // of them"


def _positive(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 0


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left, sizes), _evaluate(right, sizes))
    raise ValueError(f"{ast.unparse(node)!r} is no expression of sizes; allowed: names, numbers and + - * //")
