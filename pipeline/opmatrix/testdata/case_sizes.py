"""The sizes of a case that its declaration leaves open, and where they are."""

from __future__ import annotations

from collections.abc import Iterator

from opmatrix.declaration.size_rules import axes, size_attributes
from opmatrix.spec import Case, Input, Model, OpSpec, given, shape_of
from opmatrix.testdata.declared_shapes import template_of

Place = tuple[str, int]  # an input and an axis, or the name of a size that is no whole axis, and -1


def places(spec: OpSpec, model: Model, case: Case) -> Iterator[tuple[int, Place]]:
    """Yield the sizes of a case that its declaration leaves open, each with the axes that it has."""
    axes_of: set[str | int] = set()
    for part in spec.inputs:
        axes_of |= {dim for _, dim in axes(part)}
        for tensor in given(case, part.name):
            shape = shape_of(tensor)
            yield from ((shape[axis], (part.name, axis)) for axis in open_axes(spec, part, len(shape)))
    for name, size in template_of(spec, model, case).sizes.items():
        if name not in axes_of:
            yield size, (name, -1)


def open_axes(spec: OpSpec, part: Input, rank: int) -> Iterator[int]:
    """Yield the axes whose size is no number and not computed in the declaration."""
    dims = part.dims or ()
    attributes = size_attributes(spec)
    before = dims.index("...") if "..." in dims else len(dims)
    after = len(dims) - before
    for axis in range(rank):
        declared = dims[axis] if axis < before else dims[axis - rank] if axis - rank > -after else None
        if declared is None or (isinstance(declared, str) and declared.isidentifier() and declared not in attributes):
            yield axis
