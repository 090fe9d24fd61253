"""The operators of mutation of Python: of expressions, statements, calls and results."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from opmatrix.addons.mutate.cpp_types import Change


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file; `defaults` has a Python value for the name of each attribute."""

    text: str
    tree: ast.Module
    defaults: Mapping[str, str]

    @cached_property
    def names(self) -> set[str]:
        """All names that the file uses."""
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}

    @cached_property
    def options(self) -> set[ast.expr]:
        """The values of arguments by name, as in ``keepdims_i=1``, where 2 may mean 1."""
        return {node.value for node in ast.walk(self.tree) if isinstance(node, ast.keyword)}

    @cached_property
    def _data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _lines(self) -> list[int]:
        """The offset at which each line begins."""
        offsets = [0]
        for line in self._data.split(b"\n"):
            offsets.append(offsets[-1] + len(line) + 1)
        return offsets

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return the offsets of a node in the bytes of the file; `ast` counts columns in bytes too."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def between(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self.between(*self.span(node))

    def line(self, offset: int) -> int:
        return self._data[:offset].count(b"\n") + 1

    def replaced(self, node: ast.expr | ast.stmt | ast.keyword, after: str) -> Change:
        start, end = self.span(node)
        return Change(start=start, end=end, after=after)

    def operator(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Change:
        """Return the change of the operator between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = start + self._data[start:end].index(old.encode())
        return Change(start=at, end=at + len(old.encode()), after=new)

    def context(self, statement: ast.stmt | ast.expr, change: Change) -> str:
        """Return a statement or an expression in one line, with ``«»`` around the changed place, and without other
        statements."""
        start, end = self.span(statement)
        if body := getattr(statement, "body", None):
            end = max(self.span(body[0])[0], change.end) if not isinstance(body, ast.expr) else end
        pieces = (self.between(start, change.start), f"«{self.between(change.start, change.end)}»")
        return " ".join("".join((*pieces, self.between(change.end, end))).split())


Operator = Callable[[Source, ast.AST], Iterator[Change]]


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
            yield from (source.operator(left, right, old, new) for new in others)


def arithmetic(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield source.operator(node.left, node.right, *_ARITHMETIC[type(node.op)])
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        old, new = _ARITHMETIC[type(node.op)]
        yield source.operator(node.target, node.value, f"{old}=", f"{new}=")


def condition(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield source.replaced(node.test, "False")
        if not isinstance(node, ast.While):
            yield source.replaced(node.test, "True")
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield source.operator(node.values[0], node.values[1], old, new)
        for one in node.values:
            yield source.replaced(node, f"({source.of(one)})")


def constant(source: Source, node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield source.replaced(node, str(not node.value))
    elif isinstance(node.value, int):
        if not (node.value == 1 and node in source.options):
            yield source.replaced(node, str(node.value + 1))
        if node.value:
            yield source.replaced(node, str(node.value - 1))
    elif isinstance(node.value, float):
        yield source.replaced(node, "0.0" if node.value else "1.0")
        if node.value:
            yield source.replaced(node, repr(2 * node.value))


def sign(source: Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield source.replaced(node, f"({source.of(node.operand)})")
    if isinstance(node, ast.Assign | ast.Return) and isinstance(node.value, ast.BinOp):
        yield source.replaced(node.value, f"-({source.of(node.value)})")


def dropped(source: Source, node: ast.AST) -> Iterator[Change]:
    """A statement that is left out: a call, or a name that gets another value."""
    if isinstance(node, ast.Expr | ast.AugAssign):
        yield source.replaced(node, "pass")
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(name := node.targets[0], ast.Name):
        again = any(isinstance(used, ast.Name) and used.id == name.id for used in ast.walk(node.value))
        if again:
            yield source.replaced(node, "pass")


# Operators of ONNX and methods of torch, each with one that takes and returns the same.
_OTHERS: Mapping[str, str] = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Sqrt": "Abs", "Abs": "Neg", "Neg": "Abs", "Exp": "Log",
    "Log": "Exp", "Min": "Max", "Max": "Min", "Floor": "Ceil", "Ceil": "Floor", "Round": "Floor",
    "ReduceMean": "ReduceSum", "ReduceSum": "ReduceMean", "ReduceProd": "ReduceSum", "ReduceMax": "ReduceMin",
    "ReduceMin": "ReduceMax", "Less": "Greater", "Greater": "Less", "Identity": "Neg", "Cast": "Identity",
    "sum": "mean", "mean": "sum", "floor": "ceil", "ceil": "floor", "round": "floor", "min": "max", "max": "min",
    "square": "abs", "abs": "neg", "exp": "log", "log": "exp", "sqrt": "square", "rsqrt": "sqrt", "sin": "cos",
    "cos": "sin", "sigmoid": "tanh", "tanh": "sigmoid", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "new_zeros": "new_ones", "new_ones": "new_zeros", "scatter_add": "scatter", "relu": "abs",
}  # fmt: skip
_SYMMETRIC = ("Add", "Mul", "Min", "Max", "Equal", "And", "Or", "Sum")  # of ONNX
_DTYPES: Mapping[str, str] = {
    "float16": "float32", "float32": "float64", "float64": "float32", "int32": "int64", "int64": "int32",
}  # fmt: skip
# The usual names of ONNX's numbers of dtypes.
_TYPE_NAMES: Mapping[str, str] = {"FLOAT": "DOUBLE", "DOUBLE": "FLOAT", "INT64": "DOUBLE"}


def attribute(source: Source, node: ast.AST) -> Iterator[Change]:
    """A constant in place of an attribute: of an argument, or of what a gradient kept in ctx."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return
    name = source.of(node).removeprefix("ctx.")
    if name in source.defaults:
        yield source.replaced(node, source.defaults[name])


def _results(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the tensors that a return has."""
    if isinstance(node, ast.Return) and node.value is not None:
        for part in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
            if not isinstance(part, ast.Constant | ast.Starred):
                yield part


def _numbers(node: ast.AST) -> Iterator[ast.expr]:
    """Yield those that are not zeros in any case."""
    for part in _results(node):
        called = part.func if isinstance(part, ast.Call) else None
        if not (isinstance(called, ast.Attribute) and called.attr in ("new_zeros", "zeros", "zeros_like")):
            yield part


def zeros(source: Source, node: ast.AST) -> Iterator[Change]:
    """Zeros in place of a gradient or an output."""
    for part in _numbers(node):
        yield source.replaced(part, _of_tensor("torch.zeros_like(t)", source.of(part)))


def one_dtype(source: Source, node: ast.AST) -> Iterator[Change]:
    """A gradient or an output that is twice as large in float32 alone."""
    for part in _numbers(node):
        yield source.replaced(part, _of_tensor("t * (1 + (t.dtype == torch.float32))", source.of(part)))


def fake(source: Source, node: ast.AST) -> Iterator[Change]:
    """A fake kernel that returns another shape or another dtype."""
    for part in _results(node):
        yield source.replaced(part, _of_tensor("t.unsqueeze(0)", source.of(part)))
        yield source.replaced(part, _of_tensor("t.to(torch.float16)", source.of(part)))


def _of_tensor(computed: str, tensor: str) -> str:
    """Return the Python of `computed` for a tensor ``t``, and None where there is none."""
    return f"[None if t is None else {computed} for t in [{tensor}]][0]"


def swapped(source: Source, node: ast.AST) -> Iterator[Change]:
    """Two neighbouring arguments, exchanged; the two results of a condition."""
    if isinstance(node, ast.Call):
        parts = [part for part in node.args if not isinstance(part, ast.Constant | ast.Starred)]
        if any(isinstance(part, ast.Constant) and part.value in _SYMMETRIC for part in node.args[:1]):
            return
    elif isinstance(node, ast.IfExp):
        yield source.replaced(node, f"({source.of(node.orelse)} if {source.of(node.test)} else "
                                               f"{source.of(node.body)})")  # fmt: skip
        return
    else:
        return
    for first, second in pairwise(parts):
        if isinstance(first, ast.List | ast.Tuple) == isinstance(second, ast.List | ast.Tuple):
            start, end = source.span(first)[0], source.span(second)[1]
            between = source.between(source.span(first)[1], source.span(second)[0])
            after = f"{source.of(second)}{between}{source.of(first)}"
            yield Change(start=start, end=end, after=after)


def argument(source: Source, node: ast.AST) -> Iterator[Change]:
    """An argument by name that is left out: an attribute of a node, an option of a function."""
    if not isinstance(node, ast.Call):
        return
    before: ast.expr | ast.keyword = node.args[-1] if node.args else node.func
    for keyword in node.keywords:
        if keyword.arg not in (None, "device") and node.args:  # everything runs on the CPU
            start, end = source.span(before)[1], source.span(keyword)[1]
            yield Change(start=start, end=end, after="")
        before = keyword


def function(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another function that takes and returns the same: sum and mean, Add and Sub."""
    if not isinstance(node, ast.Call):
        return
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in _OTHERS:
        end = source.span(called)[1]
        start = end - len(called.attr.encode())
        yield Change(start=start, end=end, after=_OTHERS[called.attr])
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value in _OTHERS:
        yield source.replaced(first, f'"{_OTHERS[first.value]}"')


def dtype(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another dtype. Indices of torch are as good in int32, up to 2^31."""
    if isinstance(node, ast.Attribute) and node.attr in _DTYPES and source.of(node.value) == "torch":
        if node.attr == "int64":
            return
        yield source.replaced(node, f"torch.{_DTYPES[node.attr]}")
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _DTYPES:
        yield source.replaced(node, f'"{_DTYPES[node.value]}"')
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _TYPE_NAMES:
        other = _TYPE_NAMES[node.id]
        if other in source.names:
            yield source.replaced(node, other)
