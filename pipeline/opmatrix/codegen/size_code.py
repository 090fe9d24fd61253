"""Size expressions in generated code, C++ and Python."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from opmatrix.signature.signature import torch_variable
from opmatrix.sizes.expressions import Term
from opmatrix.sizes.rules import around, code, further_input
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
