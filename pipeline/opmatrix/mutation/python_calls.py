"""Mutants of calls and results in Python: attribute, zeros, one_dtype, fake, swapped, argument, function, dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise

from opmatrix.mutation.cpp_change import Change
from opmatrix.mutation.python_change import Source

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
        yield source.replaced("attribute", node, source.defaults[name])


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
        yield source.replaced("zeros", part, _of_tensor("torch.zeros_like(t)", source.of(part)))


def one_dtype(source: Source, node: ast.AST) -> Iterator[Change]:
    """A gradient or an output that is twice as large in float32 alone."""
    for part in _numbers(node):
        yield source.replaced("one_dtype", part, _of_tensor("t * (1 + (t.dtype == torch.float32))", source.of(part)))


def fake(source: Source, node: ast.AST) -> Iterator[Change]:
    """A fake kernel that returns another shape or another dtype."""
    for part in _results(node):
        yield source.replaced("fake", part, _of_tensor("t.unsqueeze(0)", source.of(part)))
        yield source.replaced("fake", part, _of_tensor("t.to(torch.float16)", source.of(part)))


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
        yield source.replaced("swapped", node, f"({source.of(node.orelse)} if {source.of(node.test)} else "
                                               f"{source.of(node.body)})")  # fmt: skip
        return
    else:
        return
    for first, second in pairwise(parts):
        if isinstance(first, ast.List | ast.Tuple) == isinstance(second, ast.List | ast.Tuple):
            start, end = source.span(first)[0], source.span(second)[1]
            between = source.between(source.span(first)[1], source.span(second)[0])
            after = f"{source.of(second)}{between}{source.of(first)}"
            yield Change(kind="swapped", start=start, end=end, after=after)


def argument(source: Source, node: ast.AST) -> Iterator[Change]:
    """An argument by name that is left out: an attribute of a node, an option of a function."""
    if not isinstance(node, ast.Call):
        return
    before: ast.expr | ast.keyword = node.args[-1] if node.args else node.func
    for keyword in node.keywords:
        if keyword.arg not in (None, "device") and node.args:  # everything runs on the CPU
            start, end = source.span(before)[1], source.span(keyword)[1]
            yield Change(kind="argument", start=start, end=end, after="")
        before = keyword


def function(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another function that takes and returns the same: sum and mean, Add and Sub."""
    if not isinstance(node, ast.Call):
        return
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in _OTHERS:
        end = source.span(called)[1]
        start = end - len(called.attr.encode())
        yield Change(kind="function", start=start, end=end, after=_OTHERS[called.attr])
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value in _OTHERS:
        yield source.replaced("function", first, f'"{_OTHERS[first.value]}"')


def dtype(source: Source, node: ast.AST) -> Iterator[Change]:
    """Another dtype. Indices of torch are as good in int32, up to 2^31."""
    if isinstance(node, ast.Attribute) and node.attr in _DTYPES and source.of(node.value) == "torch":
        if node.attr == "int64":
            return
        yield source.replaced("dtype", node, f"torch.{_DTYPES[node.attr]}")
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _DTYPES:
        yield source.replaced("dtype", node, f'"{_DTYPES[node.value]}"')
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in _TYPE_NAMES:
        other = _TYPE_NAMES[node.id]
        if other in source.names:
            yield source.replaced("dtype", node, other)
