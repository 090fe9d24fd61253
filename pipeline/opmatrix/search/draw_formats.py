"""The shapes in which torch's memory formats channels_last and channels_last_3d have another order of elements, for
`OpSpec.elementwise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from opmatrix.declaration.load import Operator
from opmatrix.signature.signature import attribute_values, dtype_tuples
from opmatrix.sizes.expressions import FURTHER
from opmatrix.spec import (
    Model,
    OpSpec,
    Random,
)

SHAPES = ((2, 3, 4, 5), (2, 3, 2, 4, 5))  # no two of channels, height and width are equal


def reorders(shape: tuple[int, ...]) -> bool:
    """Return whether the format for a shape has another order of elements than a contiguous tensor."""
    return len(shape) in (4, 5) and shape[1] > 1 and math.prod(shape[2:]) > 1 and shape[0] > 0


def takes_any_shape(spec: OpSpec) -> bool:
    return spec.inputs[0].dims in (None, (FURTHER,)) and not spec.inputs[0].rank


def in_other_formats(operator: Operator) -> Iterator[Model]:
    """Yield models with four and with five axes for each choice of dtypes, of an operator that takes any shape: most
    drawn inputs have fewer axes. Others are drawn with the axes that they declare."""
    from opmatrix.search.draw import named  # here, because it imports hypothesis

    spec = operator.spec
    for types in dtype_tuples(spec) if takes_any_shape(spec) else ():
        for shape in SHAPES:
            inputs = {part.name: Random(shape=shape) for part in spec.inputs}
            yield named(spec, types, attribute_values(spec, operator.models[0]), inputs)
