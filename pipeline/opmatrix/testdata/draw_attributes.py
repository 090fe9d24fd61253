"""Draw the values of attributes over all that the declaration allows: alone, the others as in a case, and together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random as Generator
from typing import Any

from hypothesis.strategies import DrawFn

from opmatrix.declaration.torch_signature import as_float32, attribute_values
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec
from opmatrix.testdata.draw_frame import Frame, pick

RANDOM = 12  # random values of an attribute, beside its limits and the simple ones
ALL = 64  # an int with at most so many values is drawn with each
# Without a limit an int is at most this, or twice what a case has: it may be a number of loops.
UNLIMITED = 34
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)
_ALONE, _TOGETHER = range(1, 3)


def attributes(draw: DrawFn, frame: Frame) -> dict[str, AttributeValue]:
    """Return a value for each attribute: those of a model, but in most draws other values of one attribute or
    of all. hypothesis shrinks towards those of the model."""
    spec, models = frame.operator.spec, frame.operator.models
    base = attribute_values(spec, frame.template[0] if frame.template else pick(draw, models or (_defaults(spec),)))
    found = {a.name: base[a.name] if a.name in base else candidates(a)[0] for a in spec.attributes}
    if not spec.attributes:
        return found
    how = pick(draw, (0, _ALONE, _TOGETHER, _ALONE, _ALONE))
    if how == _ALONE:
        changed: Sequence[Attribute] = (pick(draw, spec.attributes),)
    else:
        changed = spec.attributes if how == _TOGETHER else ()
    for attribute in changed:
        if how == _TOGETHER and pick(draw, (False, True)):
            continue
        found[attribute.name] = _value(draw, attribute, found[attribute.name], frame.operator.models)
    return found


def comparable(spec: OpSpec, values: Mapping[str, AttributeValue]) -> list[float]:
    """Return the numbers among attributes, as the reference gets them: inputs that are equal to them are drawn, since
    a kernel may compare with them."""
    numbers = []
    for attribute in spec.attributes:
        value = values.get(attribute.name)
        if attribute.kind in ("float", "int") and value is not None and math.isfinite(number := float(value)):  # type: ignore[arg-type]  # of these kinds
            numbers.append(float(as_float32(attribute, number)) if attribute.kind == "float" else number)  # type: ignore[arg-type]
    return numbers


def _defaults(spec: OpSpec) -> Model:
    return Model(name="defaults", cases=())


def _value(draw: DrawFn, attribute: Attribute, base: AttributeValue, models: Sequence[Model]) -> AttributeValue:
    seen = tuple(m.attributes[attribute.name] for m in models if attribute.name in m.attributes)
    if not isinstance(base, tuple):
        others = [value for value in candidates(attribute, seen) if value != base]
        return pick(draw, others or [base])  # type: ignore[no-any-return]
    # The elements of one list in another order; independent elements; rarely another length, which nothing declares.
    how = pick(draw, ("order", "elements", "order", "elements", "elements", "order", "elements", "length"))
    whole = pick(draw, [*dict.fromkeys((base, *seen))])
    if how == "order":
        left = [*whole]
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in whole)
    elements = candidates(attribute, tuple(item for value in (base, *seen) for item in value))  # type: ignore[union-attr]
    count = len(whole) if how == "elements" else pick(draw, (len(whole) + 1, max(0, len(whole) - 1), 0))
    if how == "elements" and all(len({*value}) == len(value) > 1 for value in (base, *seen)) and pick(draw, range(4)):  # type: ignore[arg-type,misc]
        left = [*elements]  # of different ones, as in all cases
        return tuple(left.pop(pick(draw, range(len(left)))) for _ in range(count))
    return tuple(pick(draw, elements) for _ in range(count))


@cache
def candidates(attribute: Attribute, seen: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return values that the declaration allows, of an attribute or of the elements of a list: its default, those of
    `seen`, its limits and their neighbours, simple ones and random ones. The same in every run."""
    many = attribute.kind.endswith("s")
    default = attribute.default if isinstance(attribute.default, tuple) else (attribute.default,)
    kind = attribute.kind.removesuffix("s")
    if attribute.allowed is not None:
        further: Iterator[Any] = iter(attribute.allowed)
    elif kind == "bool":
        further = iter((False, True))
    elif kind == "int":
        further = _ints(attribute, seen)
    elif kind == "float":
        further = _floats(attribute, seen)
    else:
        further = iter(() if seen or attribute.default is not None else ("",))
    found = dict.fromkeys(v for v in (*default, *seen, *further) if v is not None)
    return tuple(v for v in found if value_mistake(attribute, (v,) if many else v) is None)


def _ints(attribute: Attribute, seen: Sequence[int]) -> Iterator[int]:
    known = [abs(n) for n in (*seen, attribute.default) if isinstance(n, int)]
    far = 2 * max([UNLIMITED // 2, *known])
    low = -far if attribute.minimum is None else math.ceil(attribute.minimum)
    high = max(low, 0) + far if attribute.maximum is None else math.floor(attribute.maximum)
    low = min(low, high - far) if attribute.minimum is None else low
    if high - low < ALL:
        yield from range(low, high + 1)
        return
    yield from (low, high, low + 1, high - 1)
    yield from (low + n for n in _SIZES)
    yield from (sign * n for n in _SIZES for sign in (1, -1))
    random = Generator(attribute.name)
    yield from (random.randint(low, high) for _ in range(RANDOM // 2))
    # As likely of few digits as of many.
    yield from (low + int(math.exp(random.uniform(0, math.log(high - low)))) for _ in range(RANDOM // 2))


def _floats(attribute: Attribute, seen: Sequence[float]) -> Iterator[float]:
    random = Generator(attribute.name)
    low, high = attribute.minimum, attribute.maximum
    sizes = [abs(v) for v in (*seen, attribute.default) if isinstance(v, int | float) and v and math.isfinite(v)] or [
        1.0
    ]
    if low is not None and high is not None:
        yield from (low, high)
        yield from (_short(low + (high - low) * n / 8) for n in (4, 2, 6, 1, 7))
        yield from (_short(random.uniform(low, high)) for _ in range(RANDOM // 2))
        yield from (_short(low + (high - low) * 10 ** -random.uniform(1, 6)) for _ in range(RANDOM // 2))
        return
    sign, start = (-1, high) if high is not None else (1, low or 0.0)
    if low is not None or high is not None:
        yield float(start)
    # Without a limit not far above what the cases have: it may be a number of loops.
    magnitudes = [size * factor for size in sizes for factor in (0.5, 2.0, 0.1, 10.0)] + [1.0, 0.25]
    magnitudes += [max(sizes) * 10 ** random.uniform(-5, 1) for _ in range(RANDOM)]
    for magnitude in magnitudes:
        yield _short(start + sign * magnitude)
        if low is None and high is None:
            yield -_short(magnitude)
    yield 0.0


def _short(value: float) -> float:
    return float(f"{value:.3g}")
