"""Make the inputs of a case larger, so that calls of a kernel take long enough to overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.basics.interrupts import cpu_time
from opmatrix.data import ruled_values
from opmatrix.data.arrays import Array, is_float, reversed_copy
from opmatrix.data.ruled_values import with_ends
from opmatrix.search.shapes import places, resized_shapes
from opmatrix.signature.signature import attribute_values
from opmatrix.sizes.known import Known
from opmatrix.sizes.rules import around, axes, has_further
from opmatrix.sizes.values import known_numbers, limits
from opmatrix.spec import Case, Model, OpSpec, shape_of, tensors_of

ENOUGH = 200_000  # elements of all inputs
SLOW = 0.003  # CPU seconds of a call, after which nothing larger is tried
_MOST = 2_000_000  # elements of all outputs
_FACTOR = 4

Axes = Mapping[str, tuple[int, ...]]
Growth = Callable[[Sequence[Array]], list[Array]]  # returns larger arrays, or none
Compute = Callable[[Sequence[Array]], Sequence[Array] | None]  # the reference or the kernel; None where it refuses


def enlarge(spec: OpSpec, model: Model, case: Case, arrays: Sequence[Array], compute: Compute) -> Iterator[list[Array]]:
    """Yield larger and larger arrays of a case, with each element repeated along an axis, until there are `ENOUGH`.

    All axes of one name grow together. What `compute` refuses is not used, and after a slow call of it nothing larger
    is tried.
    """
    best = list(arrays)
    for growth in (*_by_name(spec, case), *_by_size(spec, model, case)):
        while sum(array.size for array in best) < ENOUGH:
            larger = growth(best)
            if not larger or all(array.size == before.size for array, before in zip(larger, best, strict=True)):
                break
            if not (larger := _obeying(spec, model, case, larger)):
                break
            begin = cpu_time()
            outputs = compute(larger)
            if outputs is None or sum(array.size for array in outputs) > _MOST:
                break
            yield (best := larger)
            if cpu_time() - begin > SLOW:
                return


def large_pair(spec: OpSpec, model: Model, case: Case, arrays: Sequence[Array], compute: Compute) -> list[list[Array]]:
    """Return the largest arrays of `enlarge`, and others whose values are in other places: floats in reversed order, or
    else smaller arrays. Return none where `compute` refuses all that is larger."""
    *_, smaller, largest = (None, None, *enlarge(spec, model, case, arrays, compute))
    if largest is None:
        return []
    other = [reversed_copy(array) if is_float(array.dtype) else array for array in largest]
    if not _obeying(spec, model, case, other) or compute(other) is None:
        return [largest, smaller or list(arrays)]
    return [largest, other]


def _obeying(spec: OpSpec, model: Model, case: Case, arrays: Sequence[Array]) -> list[Array]:
    """Return arrays that the declaration allows: these, with the ends of offsets moved to the size that they span.

    Return none where it forbids them: for sizes that it computes, and rules of values such as `unique`; and where it
    gives too large outputs.
    """
    given_arrays = iter(arrays)
    found = [(part, next(given_arrays)) for part in spec.inputs for _ in tensors_of(case, part.name)]
    shapes = [(part, array.shape) for part, array in found]
    attributes = attribute_values(spec, model)
    known = Known(spec=spec, shapes={part.name: shape for part, shape in reversed(shapes)}, attributes=attributes)
    elements = 0  # of the outputs
    try:
        if any(known.size(dim) != shape[axis] for part, shape in shapes for axis, dim in axes(part)):
            return []
        for output in spec.outputs:
            declared = known.output(output) or []
            sizes = [size for size in declared if isinstance(size, int)]
            elements += math.prod(sizes) if declared and len(sizes) == len(declared) else 0
        if elements > _MOST:
            return []
        numbers = known_numbers(spec, shapes, attributes)
        made = [
            (part, with_ends(array, part.values, limits(part.values, numbers)))
            if part.values and part.values.spans and array.ndim and array.size
            else (part, array)
            for part, array in found
        ]
    except (ValueError, DataError):
        return []
    wrong = any(ruled_values.problem(spec, part, numbers, array) for part, array in made)
    return [] if wrong else [array for _, array in made]


def _by_name(spec: OpSpec, case: Case) -> Iterator[Growth]:
    names = [part.name for part in spec.inputs for _ in tensors_of(case, part.name)]
    for grown in growing(spec):
        yield lambda arrays, own=grown: [  # type: ignore[misc]  # mypy infers no type for a default value
            _repeated(array, own.get(name, ())) for name, array in zip(names, arrays, strict=True)
        ]


def _by_size(spec: OpSpec, model: Model, case: Case) -> Iterator[Growth]:
    """Yield functions of which each makes one size of the case larger wherever it occurs, if nothing has grown before:
    where sizes of two names are tied, both must grow."""
    before = [shape_of(tensor) for part in spec.inputs for tensor in tensors_of(case, part.name)]
    attributes = attribute_values(spec, model)

    def growth(size: int) -> Growth:
        grown = size

        def larger(arrays: Sequence[Array]) -> list[Array]:
            nonlocal grown
            if grown == size and [array.shape for array in arrays] != before:
                return []
            grown *= _FACTOR
            shapes = resized_shapes(spec, model, case, attributes, {size: grown}) or {}
            wanted = [shape for part in spec.inputs for shape in shapes.get(part.name, ())]
            changed = [
                tuple(axis for axis, (old, new) in enumerate(zip(array.shape, shape, strict=True)) if new != old)
                for array, shape in zip(arrays, wanted, strict=bool(shapes))
            ]
            return [_repeated(array, axes) for array, axes in zip(arrays, changed, strict=bool(shapes))]

        return larger

    yield from (growth(size) for size in dict.fromkeys(size for size, _ in places(spec, model, case)) if size > 1)


def _repeated(array: Array, along: Sequence[int]) -> Array:
    for axis in along:
        if axis < array.ndim:
            array = np.repeat(array, _FACTOR, axis)  # keeps values in their order: sorted ones stay sorted
    return array


def growing(spec: OpSpec) -> Iterator[Axes]:
    """Yield the axes of inputs that can grow together: those of one name, and the first axis of a free shape."""
    named: dict[str, dict[str, tuple[int, ...]]] = {}
    for part in spec.inputs:
        for axis, size in axes(part):
            if axis >= 0 and isinstance(size, str):
                of_name = named.setdefault(size, {})
                of_name[part.name] = (*of_name.get(part.name, ()), axis)
    for together in named.values():
        yield _with_equal_shapes(spec, together)
    for part in spec.inputs:
        if part.same_as is None and part.further_as is None and has_further(part):
            sharing = [part, *(other for other in spec.inputs if other.further_as == part.name)]
            yield _with_equal_shapes(spec, {one.name: around(one)[:1] for one in sharing})


def _with_equal_shapes(spec: OpSpec, grown: Axes) -> Axes:
    """Return the axes with those of inputs that have the shape of one of these."""
    return dict(grown) | {i.name: grown[i.same_as] for i in spec.inputs if i.same_as is not None and i.same_as in grown}
