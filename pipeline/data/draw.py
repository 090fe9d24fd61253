"""Draw inputs that are hard on a kernel from the declaration alone: models of one case, in the words of cases.py.

Sizes 0, 1, 2 and primes; views of every layout; NaN, infinities, denormals, huge and tiny numbers, extreme integers;
attributes at their limits; absent inputs. What comes first in each list is what hypothesis shrinks towards.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random as Generator
from typing import Any

import hypothesis
import numpy as np
from hypothesis import assume, strategies
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider
from hypothesis.strategies import DrawFn, SearchStrategy

from pipeline.load import Operator
from pipeline.schema import dtype_of, dtype_tuples
from pipeline.spec import (
    Attribute,
    AttributeValue,
    Case,
    DType,
    Input,
    Layout,
    Model,
    Random,
    Tensor,
    Values,
    as_data,
    given,
)

EXAMPLES = 200
SIZES = (2, 1, 3, 4, 5, 6, 7, 13, 31, 0)
FURTHER = (2, 1, 3, 4, 5, 6, 7, 0)  # of the axes that "..." stands for
ELEMENTS = 4096
LAYOUTS: tuple[Layout, ...] = ("contiguous", "transposed", "sliced", "expanded", "flipped")
SPECIALS = 3  # of one tensor

Sizes = dict[str, int]


def collect(operator: Operator, *, examples: int, home: Path) -> list[Model]:
    """Return `examples` models with one case each, and always the same. `home` is where hypothesis may write.

    A constraint that the declaration does not know is not kept: reference and kernel are then both to refuse.
    """
    found: dict[str, Model] = {}

    def keep(model: Model) -> bool:
        found[model.name] = model
        return False

    find(operator, keep, examples=examples, home=home)
    return [*found.values()]


def find(operator: Operator, wanted: Callable[[Model], bool], *, examples: int, home: Path) -> Model | None:
    """Return the smallest model that is `wanted`, of those that `examples` draws lead to, or None."""
    set_hypothesis_home_dir(home)
    _Independent.random = Generator(operator.name)
    AVAILABLE_PROVIDERS["independent"] = _Independent
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        backend="independent",
    )
    try:
        return hypothesis.find(_model(_Drawn(operator)), wanted, settings=settings, random=Generator(operator.name))
    except hypothesis.errors.NoSuchExample:
        return None


class _Independent(PrimitiveProvider):
    """Draws each example on its own. hypothesis itself varies one for a while, which serves a search that is thousands
    of examples long, and takes numbers from the source of all imported modules, so that they would change with it."""

    random: Generator

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **constraints: Any) -> int:
        assert min_value is not None and max_value is not None, "the strategies here draw from finite sets alone"
        return self.random.randint(min_value, max_value)

    def draw_float(self, **constraints: Any) -> float:
        raise NotImplementedError

    def draw_string(self, *arguments: Any, **constraints: Any) -> str:
        raise NotImplementedError

    def draw_bytes(self, *arguments: Any, **constraints: Any) -> bytes:
        raise NotImplementedError


class _Drawn:
    """An operator with a short text: hypothesis spells out what a strategy was made with."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def __repr__(self) -> str:
        return self.operator.name


@strategies.composite
def _model(draw: DrawFn, what: _Drawn) -> Model:
    operator, spec = what.operator, what.operator.spec
    types = draw(_one_of(dtype_tuples(spec)))
    attributes = {a.name: draw(_one_of(values)) for a in spec.attributes if (values := _attribute(operator, a))}
    sizes: Sizes = {}
    further: list[tuple[int, ...]] = []  # what "..." stands for, in all inputs
    inputs: dict[str, Tensor | tuple[Tensor, ...] | None] = {}
    for part in spec.inputs:
        dtype = dtype_of(part.type, types)
        count = draw(_one_of((1, 0) if part.optional else (1, 2, 3) if part.variadic else (1,)))
        shape = _shape(draw, part, sizes, further)
        tensors = tuple(_tensor(draw, operator, part, dtype, shape, sizes) for _ in range(count))
        inputs[part.name] = tensors if part.variadic else tensors[0] if tensors else None
    name = f"found_{_digest(types, attributes, inputs)}"
    return Model(name=name, types=types, attributes=attributes, cases=(Case(name=name, inputs=inputs),))


def _one_of(values: Sequence[Any]) -> SearchStrategy[Any]:
    return strategies.sampled_from(values)


def _digest(*parts: object) -> str:
    """Return what names a case: its numbers follow from its name, so that the same case has the same numbers."""
    return hashlib.sha256(json.dumps(as_data(parts), sort_keys=True).encode()).hexdigest()[:8]


def _attribute(operator: Operator, attribute: Attribute) -> list[AttributeValue]:
    """Return the values of an attribute that are known to be legal: the default, those of the models, its limits."""
    values = [attribute.default, *(m.attributes.get(attribute.name) for m in operator.models)]
    values += [*(attribute.allowed or ()), attribute.minimum, attribute.maximum]
    if attribute.kind == "int":
        values = [int(v) if isinstance(v, float) else v for v in values]
    return [*dict.fromkeys(v for v in values if v is not None)]


def _shape(draw: DrawFn, part: Input, sizes: Sizes, further: list[tuple[int, ...]]) -> tuple[int, ...]:
    shape: list[int] = []
    for dim in part.dims if part.dims is not None else ("...",):
        if isinstance(dim, int):
            shape.append(dim)
        elif dim == "...":
            if not further:
                further.append(tuple(draw(strategies.lists(_one_of(FURTHER), max_size=3))))
            shape += further[0]
        else:
            if dim not in sizes:
                sizes[dim] = draw(_one_of(SIZES))
            shape.append(sizes[dim])
    assume(math.prod(shape) <= ELEMENTS)
    return tuple(shape)


def _tensor(
    draw: DrawFn, operator: Operator, part: Input, dtype: DType, shape: tuple[int, ...], sizes: Sizes
) -> Tensor:
    """A tensor whose shape is fixed is a parameter rather than data: mostly one of those that the cases have."""
    if part.dims is not None and all(isinstance(d, int) for d in part.dims) and math.prod(shape) == 1:
        return _parameter(draw, operator, part, dtype, shape, sizes)
    if dtype == "string":
        words = _one_of(("a", "", "b", "ä€"))
        return Values(values=_nested([draw(words) for _ in range(math.prod(shape))], shape))
    if dtype == "bool":
        layouts = [layout for layout in LAYOUTS if layout != "expanded"]
        return Random(shape=shape, layout=draw(_one_of(layouts)))
    mean, deviation = draw(_one_of(_scales(dtype)))
    count = draw(strategies.integers(0, min(SPECIALS, math.prod(shape))))
    specials = {
        draw(strategies.integers(0, math.prod(shape) - 1)): draw(_one_of(_specials(dtype))) for _ in range(count)
    }
    layout = draw(_one_of(LAYOUTS))
    if layout == "expanded":  # the same number all along
        assume(any(size > 1 for size in shape))
        return Random(shape=shape, mean=mean, deviation=0.0, layout=layout)
    return Random(shape=shape, mean=mean, deviation=deviation, specials=specials, layout=layout)


def _parameter(
    draw: DrawFn, operator: Operator, part: Input, dtype: DType, shape: tuple[int, ...], sizes: Sizes
) -> Tensor:
    """Return a tensor of one element: mostly one of the cases, or a size; now and then one that is likely illegal."""
    seen = [t for m in operator.models for c in m.cases for t in given(c, part.name) if isinstance(t, Values)]
    number = dtype not in ("bool", "string")
    real = dtype.startswith(("float", "bfloat"))
    likely = [Values(values=_nested([float(n) if real else n], shape)) for n in sizes.values() if number]
    unlikely = [Values(values=_nested([n], shape)) for n in _specials(dtype)] if number else []
    usual: list[Tensor] = [*dict.fromkeys((*seen, *likely))] or [Random(shape=shape)]
    chosen: Tensor = draw(_one_of(unlikely if unlikely and draw(strategies.integers(0, 9)) == 9 else usual))
    return chosen


def _nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return tuple(_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


# Mean and deviation. Numbers so large that their product overflows, and so small that it vanishes, stand in pairs with
# those that do not.
_FLOAT_SCALES: Mapping[DType, tuple[tuple[float, float], ...]] = {
    "float32": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-30), (0.0, 1e30), (-1e6, 100.0)),
    "float64": ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-200), (0.0, 1e200), (-1e6, 100.0)),
    "float16": ((0.0, 1.0), (100.0, 1.0), (0.0, 1e-5), (0.0, 1000.0)),
    "bfloat16": ((0.0, 1.0), (100.0, 1.0), (0.0, 1e-30), (0.0, 1e30)),
}


def _scales(dtype: DType) -> tuple[tuple[float, float], ...]:
    return _FLOAT_SCALES.get(dtype, ((20.0, 3.0),) if dtype.startswith("uint") else ((0.0, 3.0), (0.0, 20.0)))


def _specials(dtype: DType) -> list[float]:
    """Return numbers at the edge of a dtype."""
    if not dtype.startswith(("float", "bfloat")):
        limits = np.iinfo(dtype)
        return [0, -1, limits.max, limits.min] if limits.min else [0, limits.max]
    found: Any = np.finfo("float32" if dtype == "bfloat16" else dtype)
    largest = 3e38 if dtype == "bfloat16" else float(found.max)
    return [
        *(0.0, -0.0, math.nan, math.inf, -math.inf, -1.0, 0.5, 1.5),
        *(float(found.tiny), float(found.tiny) / 4, largest, -largest),
    ]
