"""The samples of the gradient check: small models of one case each, with moderate values away from limits and ties.

They are the small cases; the smallest of them with each attribute at other values, without each optional input, and in
each dtype; and the drawn inputs, with moderate values in place of theirs. What brings something new comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean

import numpy as np
import torch

from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import described, elements, obeys
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs
from opmatrix.search.shapes import resized_shapes
from opmatrix.signature.signature import attribute_values, dtype_of, dtype_tuples
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    DType,
    MemoryLayout,
    Model,
    Nested,
    OpSpec,
    Random,
    Tensor,
    Values,
    shape_of,
    tensors_of,
)
from opmatrix.torch_checks.case_calls import CaseCall, case_call
from opmatrix.torch_checks.reference_operator import differentiated_types

SMALL = 256  # elements of one tensor
MODERATE = 1000.0
WHOLE = 48  # values of an int attribute, up to which all are taken
_INTS = (0, 1, 2, 3, -1, -2)
_FLOATS = (0.5, 2.0, 0.125, 1.0, -0.5)

Normal = tuple[float, float]  # mean and deviation


def models(operator: Operator, drawn: Sequence[Model]) -> list[Model]:
    """Return the samples, those first that bring something new; the same in every run for the same `drawn`."""
    spec = operator.spec
    own = [replace(m, cases=(c,)) for m in operator.models for c in m.cases if described(c)]
    normals = {i.name: _normals(own, i.name) for i in spec.inputs}
    smallest: dict[tuple[DType, ...], Model] = {}
    for model in sorted(own, key=lambda m: sum(elements(m.cases[0]))):
        if all(0 < n <= SMALL for n in elements(model.cases[0])):
            smallest.setdefault(tuple(model.types.values()), model)
    varied = [other for base in smallest.values() for other in (*_absent(spec, base), *_attributes(operator, base))]
    typed = [
        replace(base, types=types)
        for base in [*smallest.values()][:1]
        for types in dtype_tuples(spec)
        if tuple(types.values()) not in smallest
    ]
    calm = [_calm(spec, model, normals, index) for index, model in enumerate(drawn)]
    usable = [
        m for m in (*own, *typed, *varied, *calm) if all(n <= SMALL for n in elements(m.cases[0])) and obeys(spec, m)
    ]
    seen: set[tuple[object, ...]] = set()
    new: list[Model] = []
    others: list[Model] = []
    for model in usable:
        brings = {*_features(spec, model)}
        (others if brings <= seen else new).append(model)
        seen |= brings
    return new + others


def _features(spec: OpSpec, model: Model) -> Iterator[tuple[object, ...]]:
    """Yield what a formula could treat on its own: dtypes, attributes' values, absent inputs, ranks, sizes 0 and 1."""
    case, types = model.cases[0], tuple(model.types.values())
    yield ("types", types)
    yield from (("attribute", *item) for item in attribute_values(spec, model).items())
    for part in spec.inputs:
        shapes = [shape_of(tensor) for tensor in tensors_of(case, part.name)]
        yield ("given", part.name, min(len(shapes), 2), types)
        for shape in shapes:
            yield ("rank", part.name, len(shape))
            yield from (("size", part.name, axis, size) for axis, size in enumerate(shape) if size < 2)


def _attributes(operator: Operator, base: Model) -> Iterator[Model]:
    """Yield the model with each attribute at each other value, the attributes in turn, and with the shapes that follow
    from it: none where the declaration has no such shapes, or values of other shapes are listed."""
    now = attribute_values(operator.spec, base)
    others: list[list[tuple[str, AttributeValue]]] = []
    for attribute in operator.spec.attributes:
        cases = [m.attributes[attribute.name] for m in operator.models if attribute.name in m.attributes]
        found = dict.fromkeys(values(attribute, cases))
        others.append([(attribute.name, value) for value in found if value != now.get(attribute.name)])
    for turn in zip_longest(*others):
        for name, value in filter(None, turn):
            changed = replace(base, attributes={**base.attributes, name: value})
            attributes = attribute_values(operator.spec, changed)
            shapes = resized_shapes(operator.spec, base, base.cases[0], attributes)
            if shapes is not None and (fitting := reshaped(operator.spec, changed, shapes)) is not None:
                yield fitting


def reshaped(spec: OpSpec, model: Model, shapes: Mapping[str, list[tuple[int, ...]]]) -> Model | None:
    """Return a model of one case with other shapes, or None where values of other shapes are listed.

    Tensors keep their memory layout but "expanded", for which other values would have to repeat."""
    (case,) = model.cases
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        made: list[Tensor] = []
        for tensor, shape in zip(tensors_of(case, part.name), shapes[part.name], strict=True):
            if shape_of(tensor) == shape:
                made.append(tensor)
            elif isinstance(tensor, Random):
                layout = _without_expanded(tensor.layout)
                made.append(Random(shape=shape, mean=tensor.mean, deviation=tensor.deviation, layout=layout))
            else:
                return None
        inputs[part.name] = tuple(made) if part.variadic else made[0] if made else None
    return replace(model, cases=(replace(case, inputs=inputs),))


def values(attribute: Attribute, cases: Sequence[AttributeValue]) -> list[AttributeValue]:
    """Return moderate values that the declaration allows: the cases', the default, and others of its range."""
    moderate = [*cases, attribute.default] if attribute.optional or attribute.default is not None else [*cases]
    low = -math.inf if attribute.minimum is None else attribute.minimum
    high = math.inf if attribute.maximum is None else attribute.maximum
    if attribute.kind == "bool":
        moderate += [False, True]
    elif attribute.allowed is not None:
        moderate += attribute.allowed
    elif attribute.kind == "int":
        near = range(math.ceil(low), math.floor(high) + 1) if high - low < WHOLE else _INTS
        limits = (int(x) for x in (low, high) if abs(x) <= MODERATE)
        moderate += [n for n in (*near, *limits) if low <= n <= high]
    elif attribute.kind == "float":
        moderate += [x for x in (*_FLOATS, low, high) if low <= x <= high and abs(x) <= MODERATE]
    return moderate


def _absent(spec: OpSpec, base: Model) -> Iterator[Model]:
    """Yield the model without each optional input that it has, and without all of them."""
    case = base.cases[0]
    optional = [i.name for i in spec.inputs if i.optional and tensors_of(case, i.name)]
    for left_out in dict.fromkeys([*((name,) for name in optional), tuple(optional)] if optional else []):
        yield replace(base, cases=(replace(case, inputs={**case.inputs, **dict.fromkeys(left_out)}),))


def _calm(spec: OpSpec, model: Model, normals: dict[str, list[Normal]], index: int) -> Model:
    """Return a drawn model with moderate values, distributed as in the cases."""
    case = model.cases[0]
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        floating = "float" in dtype_of(part.type, model.types)
        choice = normals[part.name]
        made = tuple(_moderate(t, floating, choice[index % len(choice)]) for t in tensors_of(case, part.name))
        inputs[part.name] = made if part.variadic else made[0] if made else None
    return replace(model, cases=(Case(name=case.name, inputs=inputs),))


def _moderate(tensor: Tensor, floating: bool, normal: Normal) -> Tensor:
    if isinstance(tensor, Values):
        numbers = _numbers(tensor.values)
        if not floating or all(abs(n) <= MODERATE for n in numbers):  # a NaN is not
            return tensor
    elif isinstance(tensor, Random) and not floating:
        return replace(tensor, specials={at: v for at, v in tensor.specials.items() if abs(v) <= MODERATE})
    layout = _without_expanded(tensor.layout)
    return Random(shape=shape_of(tensor), mean=normal[0], deviation=normal[1], layout=layout)


def _without_expanded(layout: MemoryLayout) -> MemoryLayout:
    return "contiguous" if layout == "expanded" else layout


def _normals(own: Sequence[Model], name: str) -> list[Normal]:
    """Return the moderate distributions of an input in the cases, or the standard normal one."""
    found: list[Normal] = []
    for tensor in (t for model in own for t in tensors_of(model.cases[0], name)):
        if isinstance(tensor, Random):
            found.append((tensor.mean, tensor.deviation))
        elif isinstance(tensor, Values) and (numbers := [n for n in _numbers(tensor.values) if abs(n) <= MODERATE]):
            found.append((fmean(numbers), (max(numbers) - min(numbers)) / 4 or 1.0))
    return [*dict.fromkeys(n for n in found if abs(n[0]) <= 100 and 1e-3 <= n[1] <= 100)] or [(0.0, 1.0)]


def _numbers(nested: Nested) -> list[float]:
    return [float(value) for value in np.ravel(nested) if not isinstance(value, str)]


NUDGE = 2e-6  # relative, at most; more than float32 has digits for
NUDGES = 8


def sample(
    spec: OpSpec, model: Model, *, without: Sequence[str], exact: bool, arrays: Sequence[Array] | None = None
) -> CaseCall:
    """Return the sample of a model's first case; in float64 wherever a gradient is taken, with `exact`.

    Raises DataError for a tensor that cannot be made.
    """
    one, types = case_call(spec, model, arrays), differentiated_types(spec, without)
    flat = [*one.tensors]
    for n, feed in enumerate(graph_inputs(spec, model, one.case)):
        if exact and flat[n].is_floating_point() and feed.part.type in types:
            flat[n] = flat[n].double()
    derived = [n for n, t in enumerate(flat) if t.is_floating_point() and one.names[n] not in without]
    return replace(one, tensors=flat, derived=derived)


def nudged(one: CaseCall, *, leaves: bool = False) -> Iterator[CaseCall]:
    """Yield the sample with floating inputs and attributes changed by about a millionth; `leaves`: with those that take
    a gradient."""
    signs = torch.Generator().manual_seed(0)
    attributes = {name: v for name, v in attribute_values(one.spec, one.model).items() if isinstance(v, float)}
    for _ in range(NUDGES):
        flat = [
            t
            if (n in one.derived and not leaves) or not t.is_floating_point()
            else t * (1 + NUDGE * (2 * torch.rand(t.shape, generator=signs, dtype=torch.float64) - 1)).to(t.dtype)
            for n, t in enumerate(one.tensors)
        ]
        factor = 1 + NUDGE * (2 * float(torch.rand((), generator=signs)) - 1)
        scaled = {name: value * factor for name, value in attributes.items()}
        yield replace(one, tensors=flat, model=replace(one.model, attributes={**one.model.attributes, **scaled}))
