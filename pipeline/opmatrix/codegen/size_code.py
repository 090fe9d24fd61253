"""Sizes in generated code, C++ and Python: size expressions, and the checks of shapes that both make."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opmatrix.signature.signature import torch_variable
from opmatrix.sizes import checks
from opmatrix.sizes.expressions import Term
from opmatrix.sizes.rules import around, axes, code, further_input, has_further, sizes_at
from opmatrix.spec import Input, OpSpec

SIZE_FUNCTIONS = ("floor_divide(", "axis_size(", "sizes_between(", "AnyRank ")
"""The functions and types of sizes.h that C++ with sizes may contain."""
ITEM = "item"  # in Python one tensor of a variadic input


@dataclass(frozen=True, kw_only=True)
class SizeCode:
    """The C++ of size expressions: `shape` returns that of the sizes of an input, `attribute` that of an attribute."""

    spec: OpSpec
    shape: Callable[[str], str]
    attribute: Callable[[str], str]

    def __call__(self, expression: str | int) -> str:
        """Return the code of an expression."""
        return ast.unparse(_CppDivision().visit(code(self.spec, expression, self.term)))

    def term(self, term: Term) -> str:
        """Return the code of a term that is no name of a size."""
        match term.kind:
            case "product":
                return self.product(self.further())
            case "rank":
                return self.rank(term.of)
            case "size":
                return self.axis(self.shape(term.of), term.at)
        return self.attribute(term.of) + (f"[{term.at}]" if term.kind == "item" else "")

    def product(self, sizes: str) -> str:
        return f"numel({sizes})"

    def rank(self, name: str) -> str:
        return f"{self.shape(name)}.rank"

    def length(self, attribute: str) -> str:
        return f"{self.attribute(attribute)}.size()"

    def axis(self, shape: str, at: int | str) -> str:
        """Return the size of an axis: a number, negative from the back, or the attribute that names it."""
        if isinstance(at, str):
            return f"axis_size({shape}, {self.attribute(at)})"
        return f"{shape}[{at}]" if at >= 0 else f"{shape}[{shape}.rank - {-at}]"

    def further(self) -> str:
        """Return the sizes of "..."."""
        part = further_input(self.spec)
        assert part is not None
        return self.further_of(part)

    def further_of(self, part: Input) -> str:
        """Return the sizes of the "..." of an input."""
        front, back = around(part)
        return f"sizes_between({self.shape(part.name)}, {front}, {back})"

    def sizes(self, name: str) -> str:
        """Return all sizes of an input."""
        return self.shape(name)

    def shown(self, sizes: str) -> str:
        """Return sizes as messages print them."""
        return sizes

    def compared(self, left: str, sign: str, right: str | int) -> str:
        """Return the condition of a comparison that must hold."""
        return f"{left} {sign} {right}"

    def is_axis(self, axis: str, rank: str) -> str:
        """Return the condition that an axis, maybe from the back, must be one of `rank`."""
        return f"{axis} >= -{rank} && {axis} < {rank}"


class _CppDivision(ast.NodeTransformer):
    """Replaces // with a division that rounds down in C++ too, where the dividend may be negative."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv):
            return node
        if any(isinstance(part, ast.Sub) for part in ast.walk(node.left)):
            return ast.Call(ast.Name("floor_divide"), [node.left, node.right], [])
        return ast.BinOp(node.left, ast.Div(), node.right)


_OPPOSITE = {"==": "!=", ">=": "<", ">": "<="}


class PythonSizes(SizeCode):
    """The Python of size expressions. `shape` returns a tensor, and a condition is true where a call is refused."""

    @classmethod
    def of(cls, spec: OpSpec) -> PythonSizes:
        variadic = {i.name for i in spec.inputs if i.variadic}
        variables = {a.name: torch_variable(spec, a) for a in spec.attributes}
        return cls(
            spec=spec,
            shape=lambda name: ITEM if name in variadic else name,
            attribute=lambda name: variables.get(name, name),
        )

    def __call__(self, expression: str | int) -> str:
        return ast.unparse(code(self.spec, expression, self.term))

    def product(self, sizes: str) -> str:
        return f"math.prod({sizes})"

    def rank(self, name: str) -> str:
        return f"{self.shape(name)}.dim()"

    def length(self, attribute: str) -> str:
        return f"len({self.attribute(attribute)})"

    def axis(self, shape: str, at: int | str) -> str:
        return f"{shape}.shape[{self.attribute(at) if isinstance(at, str) else at}]"

    def further_of(self, part: Input) -> str:
        front, back = around(part)
        return f"{self.shape(part.name)}.shape[{front or ''}:{-back if back else ''}]"

    def sizes(self, name: str) -> str:
        return f"{self.shape(name)}.shape"

    def shown(self, sizes: str) -> str:
        return f"tuple({sizes})"

    def compared(self, left: str, sign: str, right: str | int) -> str:
        return f"{left} {_OPPOSITE[sign]} {right}"

    def is_axis(self, axis: str, rank: str) -> str:
        return f"not -{rank} <= {axis} < {rank}"


@dataclass(frozen=True, kw_only=True)
class SizeCheck:
    """The code of one check of `opmatrix.sizes.checks`: its conditions, and texts and expressions of the message in
    turns. `given` is the input that is wrong then, `among` are all whose tensors it compares, in the order of loops."""

    conditions: list[str]
    message: list[str]
    given: Input | None = None
    among: tuple[Input, ...] = ()


def size_checks(code: SizeCode) -> Iterator[SizeCheck]:
    """Yield the checks of a call's sizes."""
    for check in checks.size_checks(code.spec):
        given = None if isinstance(check, checks.ItemCheck | checks.AxisCheck) else check.given
        among: tuple[Input, ...] = (given,) if given else ()
        match check:
            case checks.ItemCheck(attribute=name):
                length = code.length(name)
                conditions = [code.compared(length, "==" if check.exactly else ">=", check.count)]
                message = [f"{name} must have {check}, got ", length]
            case checks.AxisCheck(given=part, at=str(name)):
                rank, axis = code.rank(part.name), code.attribute(name)
                conditions = [code.is_axis(axis, rank)]
                message = [f"{name} must be an axis of {part.name}, which has ", rank, " axes, got ", axis]
            case checks.AxisCheck(given=part, at=int(at)):
                conditions = [code.compared(code.rank(part.name), *((">", at) if at >= 0 else (">=", -at)))]
                message = [f"{part.name} must have an axis {at}, got ", code.shown(code.sizes(part.name))]
            case checks.SameShape(given=part, other=name):
                own, there = code.sizes(part.name), code.sizes(name)
                conditions = [code.compared(own, "==", there)]
                text = f"{part.name} must have the shape of {name}, "
                message = [text, code.shown(there), ", got ", code.shown(own)]
            case checks.SameFurther(given=part, other=other):
                there = code.further_of(other)
                conditions = [code.compared(code.further_of(part), "==", there)]
                message = _message(code, part, [("...", code.shown(there), other.name)])
            case checks.ShapeCheck(given=part):
                conditions = [*_conditions(check, code)]
                message = _message(code, part, _origins(code, part, check.others))
            case checks.OptionalCheck(given=part):
                conditions = [code.compared(code.axis(code.shape(part.name), check.at), "==", code(check.dim))]
                message = _message(code, part, _origins(code, part, check.names))
                among = (*check.others, part)
            case checks.TieCheck(given=part, other=other):
                is_own = other is part
                there = code.axis(f"{part.name}[0]" if is_own else code.shape(other.name), check.axis)
                conditions = [code.compared(code.axis(code.shape(part.name), check.at), "==", there)]
                message = _message(code, part, [(check.name, there, other.name)])
                among = (part,) if is_own else (part, other)
        yield SizeCheck(conditions=conditions, message=message, given=given, among=among)


def _conditions(check: checks.ShapeCheck, code: SizeCode) -> Iterator[str]:
    given, rank = check.given, code.rank(check.given.name)
    if check.rank:
        yield code.compared(rank, ">=" if has_further(given) else "==", len(axes(given)))
    if check.rank_name is not None:
        yield code.compared(rank, "==", code(check.rank_name))
    yield from (code.compared(code(name), ">=", 0) for name in check.positive)
    shape = code.shape(given.name)
    yield from (code.compared(code.axis(shape, at), "==", code(dim)) for at, dim in check.sizes)


def _origins(code: SizeCode, part: Input, used: Sequence[Term]) -> list[tuple[str, str, str]]:
    """Return name, value and input of what sizes are computed from, without what is shown anyway."""
    found = [(term.key, code(term.key), checks.owner(code.spec, term)) for term in used]
    return [origin for origin in found if origin[2] != part.name]


def _message(code: SizeCode, part: Input, origins: Sequence[tuple[str, str, str]]) -> list[str]:
    text, separator = f"{part.name} must have {shape_text(part)}", " with "
    parts: list[str] = []
    for name, expression, source in origins:
        parts += [f"{text}{separator}{name} = ", expression]
        text, separator = f" as in {source}" if source else "", " and "
    return [*parts, f"{text}, got ", code.shown(code.sizes(part.name))]


def shape_text(part: Input) -> str:
    """Return the declared shape as messages show it: ``shape (N, 2*C) and rank R``."""
    dims = part.dims if part.dims is not None else ("...",)
    shape = ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "")
    at = "".join(f" and {dim} along {attribute}" for attribute, dim in sizes_at(part))
    return f"shape ({shape})" + (f" and rank {part.rank}" if part.rank else "") + at
