"""Keep the outputs of drawn inputs small: an attribute at its extreme may be the size of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from opmatrix.declaration.declared_sizes import expressions
from opmatrix.declaration.known_sizes import Known
from opmatrix.declaration.size_expressions import terms
from opmatrix.declaration.size_rules import axes, once, size_attributes
from opmatrix.declaration.variadic_outputs import count, counter
from opmatrix.spec import Attribute, AttributeValue, Dims, FromKernel, Input, OpSpec
from opmatrix.testdata.attribute_candidates import candidates
from opmatrix.testdata.declared_shapes import least_elements, most_elements

ELEMENTS = 16384  # where declared numbers do not make an output larger
OUTPUT = 256  # that each tensor of a variadic output counts as, at least

Shapes = Iterable[tuple[Input, tuple[int, ...]]]


@once
def most_of_outputs(spec: OpSpec) -> int:
    """Return how many elements an output of drawn inputs may have."""
    rules = [output.shape for output in spec.outputs]
    dims = [rule.dims for rule in rules if isinstance(rule, Dims | FromKernel)]
    dims += [part.dims for part in spec.inputs]
    least = max(least_elements(sizes) for sizes in dims)
    return most_elements(ELEMENTS, least)


def elements(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue]) -> int:
    """Return the number of elements of the largest output, as far as its sizes are declared. An axis of size 0 counts
    as one of 1, because the strides of the others must fit, too."""
    return max(_elements(spec, shapes, attributes), default=0)


def _elements(spec: OpSpec, given: Shapes, attributes: Mapping[str, AttributeValue]) -> list[int]:
    """Return the elements of each output, without those whose sizes are invalid: the operator refuses that itself."""
    shapes = [*given]
    first = {part.name: shape for part, shape in reversed(shapes)}
    known, found = Known(spec=spec, shapes=first, attributes=attributes), []
    for output in spec.outputs:
        try:
            sizes = known.output(output) or []
        except ValueError:
            continue
        found.append(math.prod(max(1, size) for size in sizes if isinstance(size, int)))
    part = counter(spec)
    if part is not None and found:
        tensors = {part.name: [shape for other, shape in shapes if other is part]}
        found[-1] = count(spec, tensors, attributes) * max(OUTPUT, found[-1])
    return found


def bounded(
    spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue], *, limit: int | None = None
) -> dict[str, AttributeValue]:
    """Return attributes with which no output with declared sizes has more than `limit` elements, if there are any:
    those that are sizes of outputs alone get the largest drawn value that fits."""
    found, shapes, limit = dict(attributes), [*shapes], limit or most_of_outputs(spec)
    for attribute in _output_attributes(spec):
        if attribute.name not in found or elements(spec, shapes, found) <= limit:
            continue
        values = candidates(attribute)
        valid = len(_elements(spec, shapes, found))
        fitting = [v for v in values if _fits(spec, shapes, {**found, attribute.name: v}, valid=valid, limit=limit)]
        found[attribute.name] = max(fitting, default=min(values))
    return found


def _fits(spec: OpSpec, shapes: Shapes, attributes: Mapping[str, AttributeValue], *, valid: int, limit: int) -> bool:
    sizes = _elements(spec, shapes, attributes)
    return len(sizes) >= valid and max(sizes, default=0) <= limit


@once
def _output_attributes(spec: OpSpec) -> list[Attribute]:
    """Return the ints in sizes of outputs that no size of an input is computed from."""
    inputs = {t.of for part in spec.inputs for _, dim in axes(part) for t in terms(dim)}
    used = {t.of for one in expressions(spec) for t in terms(one)} - inputs
    used |= {part.name for part in [counter(spec)] if part is not None}
    return [a for name, a in size_attributes(spec).items() if name in used and a.kind == "int"]
