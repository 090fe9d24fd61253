"""Keep the outputs of drawn inputs small: an attribute at its extreme may be the size of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from opmatrix.declaration.size_expressions import attribute_sizes, named_sizes, size, size_attributes
from opmatrix.spec import AttributeValue, Dims, Input, OpSpec
from opmatrix.testdata.attribute_candidates import candidates

ELEMENTS = 16384

Shapes = Iterable[tuple[Input, tuple[int, ...]]]


def elements(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue]) -> int:
    """Return the number of elements of the largest output with declared sizes; an axis of size 0 counts as one of 1,
    because the strides of the others must fit, too."""
    sizes = {**named_sizes(shapes), **attribute_sizes(spec, attributes)}
    return max((_elements(output.shape, sizes) for output in spec.outputs if isinstance(output.shape, Dims)), default=0)


def _elements(rule: Dims, sizes: Mapping[str, int]) -> int:
    try:
        return math.prod(max(1, size(dim, sizes)) for dim in rule.dims)
    except ValueError:  # a size that nothing gives, or a negative one: the operator refuses that itself
        return 0


def bounded(
    spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue], *, limit: int = ELEMENTS
) -> dict[str, AttributeValue]:
    """Return attributes with which no output with declared sizes has more than `limit` elements, if there are any:
    those that are sizes get the largest drawn value that fits."""
    found, shapes = dict(attributes), [*shapes]
    named = size_attributes(spec)
    for name in [name for name in named if name in found]:
        if elements(spec, shapes, found) <= limit:
            break
        values = candidates(named[name])
        fitting = [v for v in values if elements(spec, shapes, {**found, name: v}) <= limit]
        found[name] = max(fitting, default=min(values))
    return found
