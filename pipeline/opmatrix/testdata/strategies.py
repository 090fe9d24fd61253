"""hypothesis strategies for difficult inputs, from the declaration and the shapes of its cases.

Sizes 0, 1, 2 and primes; every memory layout; NaN, infinities, denormals, huge and tiny floats, extreme integers;
attributes at their limits; absent inputs. hypothesis shrinks towards the first element of each list.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import assume, strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import attribute_values, dtype_of, dtype_tuples, is_parameter
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    DType,
    Input,
    MemoryLayout,
    Model,
    Random,
    Tensor,
    Values,
    as_data,
    given,
    shape_of,
)
from opmatrix.testdata.case_arrays import elements

SIZES = (2, 1, 3, 4, 5, 6, 7, 13, 31, 0)
FURTHER = (2, 1, 3, 4, 5, 6, 7, 0)  # sizes of the axes of "..."
ELEMENTS = 4096
LAYOUTS: tuple[MemoryLayout, ...] = ("contiguous", "transposed", "sliced", "expanded", "flipped")
SPECIALS = 3  # per tensor, at most


@dataclass(frozen=True)
class _Frame:
    """The shared state of one draw: the case whose shapes its tensors take, or the sizes chosen so far."""

    operator: Operator
    template: tuple[Model, Case] | None
    sizes: dict[str, int] = field(default_factory=dict)
    further: list[tuple[int, ...]] = field(default_factory=list)  # the sizes of "...", the same in all inputs


def models(operator: Operator) -> SearchStrategy[Model]:
    """Return a strategy for models of one case; half have shapes of a case, which satisfy undeclared constraints."""

    @strategies.composite
    def model(draw: DrawFn) -> Model:  # without arguments: hypothesis 6 formats them for every example
        return _model(draw, operator)

    return model()


def _model(draw: DrawFn, operator: Operator) -> Model:
    spec = operator.spec
    types = _pick(draw, dtype_tuples(spec))
    templates = [(m, c) for m in operator.models for c in m.cases if all(n <= ELEMENTS for n in elements(c))]
    templated = bool(templates) and _pick(draw, (False, True))
    frame = _Frame(operator, _pick(draw, templates) if templated else None)
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        dtype = dtype_of(part.type, types)
        tensors = tuple(_tensor(draw, frame, part, dtype, shape) for shape in _shapes(draw, frame, part))
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    attributes = {a.name: _pick(draw, values) for a in spec.attributes if (values := _attribute(frame, a))}
    content = json.dumps(as_data((types, attributes, inputs)), sort_keys=True)
    name = f"found_{hashlib.sha256(content.encode()).hexdigest()[:8]}"  # the name seeds the values
    return Model(name=name, types=types, attributes=attributes, cases=(Case(name=name, inputs=inputs),))


def _pick(draw: DrawFn, values: Sequence[Any]) -> Any:
    """Draw one of `values` by its index, since hypothesis would format all values."""
    return values[draw(strategies.integers(0, len(values) - 1))]


def _attribute(frame: _Frame, attribute: Attribute) -> list[AttributeValue]:
    """Return valid values of an attribute: that of the template, or its default, those of all models, its limits."""
    if frame.template:
        value = attribute_values(frame.operator.spec, frame.template[0]).get(attribute.name)
        return [] if value is None else [value]
    values = [attribute.default, *(m.attributes.get(attribute.name) for m in frame.operator.models)]
    if not attribute.kind.endswith("s"):  # a list's limits are those of its elements
        values += [*(attribute.allowed or ()), attribute.minimum, attribute.maximum]
    if attribute.kind == "int":
        values = [int(v) if isinstance(v, float) else v for v in values]
    return [*dict.fromkeys(v for v in values if v is not None)]


def _shapes(draw: DrawFn, frame: _Frame, part: Input) -> list[tuple[int, ...]]:
    """Return the shape of each tensor of an input."""
    if frame.template:
        return [shape_of(t) for t in given(frame.template[1], part.name)]
    count = _pick(draw, (1, 0) if part.optional else (1, 2, 3) if part.variadic else (1,))
    return [_shape(draw, frame, part)] * count


def _shape(draw: DrawFn, frame: _Frame, part: Input) -> tuple[int, ...]:
    if part.same_as is not None:  # its sizes are chosen already
        return _shape(draw, frame, next(i for i in frame.operator.spec.inputs if i.name == part.same_as))
    shape: list[int] = []
    for dim in part.dims if part.dims is not None else ("...",):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim == "...":
            if not frame.further:
                frame.further.append(tuple(draw(strategies.lists(strategies.sampled_from(FURTHER), max_size=3))))
            shape += frame.further[0]
        else:
            if dim not in frame.sizes:
                frame.sizes[dim] = _pick(draw, SIZES)
            shape.append(frame.sizes[dim])
    assume(math.prod(shape) <= ELEMENTS)
    return tuple(shape)


def _tensor(draw: DrawFn, frame: _Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    if is_parameter(part):
        return _parameter(draw, frame, part, dtype, shape)
    if dtype == "string":
        words = ("a", "", "b", "ä€")
        return Values(values=_nested([_pick(draw, words) for _ in range(math.prod(shape))], shape))
    if dtype == "bool":
        layouts = [layout for layout in LAYOUTS if layout != "expanded"]
        return Random(shape=shape, layout=_pick(draw, layouts))
    scales = _FLOAT_SCALES.get(dtype, ((20.0, 3.0),) if dtype.startswith("uint") else ((0.0, 3.0), (0.0, 20.0)))
    mean, deviation = _pick(draw, scales)
    count = draw(strategies.integers(0, min(SPECIALS, math.prod(shape))))
    specials = {draw(strategies.integers(0, math.prod(shape) - 1)): _pick(draw, _specials(dtype)) for _ in range(count)}
    layout = _pick(draw, LAYOUTS)
    if layout == "expanded":  # all elements are equal
        assume(any(size > 1 for size in shape))
        return Random(shape=shape, mean=mean, deviation=0.0, layout=layout)
    return Random(shape=shape, mean=mean, deviation=deviation, specials=specials, layout=layout)


def _parameter(draw: DrawFn, frame: _Frame, part: Input, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of one element: one of the cases or a size, or in one of ten draws a special value."""
    cases = [frame.template[1]] if frame.template else [c for m in frame.operator.models for c in m.cases]
    seen = [t for c in cases for t in given(c, part.name) if isinstance(t, Values)]
    number = dtype not in ("bool", "string")
    real = dtype.startswith(("float", "bfloat"))
    likely = [Values(values=_nested([float(n) if real else n], shape)) for n in frame.sizes.values() if number]
    unlikely = [Values(values=_nested([n], shape)) for n in _specials(dtype)] if number else []
    usual: list[Tensor] = [*dict.fromkeys((*seen, *likely))] or [Random(shape=shape)]
    chosen: Tensor = _pick(draw, unlikely if unlikely and draw(strategies.integers(0, 9)) == 9 else usual)
    return chosen


def _nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return tuple(_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


# Mean and deviation. A product of two of the largest, or of the smallest, still fits the dtype: a kernel that computes
# the formula in its own precision is correct, and need not avoid overflow.
_FLOAT_SCALES: Mapping[DType, tuple[tuple[float, float], ...]] = {
    "float32": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-15), (0.0, 1e15), (-1e6, 100.0)),
    "float64": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-100), (0.0, 1e100), (-1e6, 100.0)),
    "float16": ((0.0, 1.0), (10.0, 1.0), (0.0, 0.01), (0.0, 30.0)),
    "bfloat16": ((0.0, 1.0), (100.0, 1.0), (0.0, 1e-15), (0.0, 1e15)),
}


def _specials(dtype: DType) -> list[float]:
    """Return special values of a dtype: zeros, limits, and for floats NaN, infinities, tiny and huge ones."""
    if not dtype.startswith(("float", "bfloat")):
        limits = np.iinfo(dtype)
        return [0, -1, limits.max, limits.min] if limits.min else [0, limits.max]
    found: Any = np.finfo("float32" if dtype == "bfloat16" else dtype)
    tiny, huge = float(found.tiny), math.sqrt(float(found.max)) / 16
    return [0.0, -0.0, math.nan, math.inf, -math.inf, -1.0, 0.5, 1.5, tiny / 4, math.sqrt(tiny), huge, -huge]
