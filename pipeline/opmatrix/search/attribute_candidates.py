"""Values of an attribute over all that its declaration allows: the same in every run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random as Generator
from typing import Any

from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.spec import Attribute

STRINGS = ("a", "", "b", " ", "\0", "a\0b", "a\0", "ä€😀", "e\u0301", "\n", "A much longer string, " * 20)
"""Unusual strings."""
RANDOM = 12  # random values of an attribute, beside its limits and the simple ones
ALL = 64  # an int with at most so many values is drawn with each
# Without a limit an int is at most this, or twice what a case has: it may be a number of loops.
UNLIMITED = 34
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)
_LARGE = (64, 65, 127, 128, 129, 255, 256, 257, 1000, 4096, 65536, 10**6)


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
    elif many:
        further = iter(STRINGS)
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
    common = (*(sign * n for n in _SIZES for sign in (1, -1)), *_LARGE)
    yield from (n for n in common if low <= n <= high)
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
    magnitudes = [size * factor for size in sizes for factor in (1.0, 0.5, 2.0, 0.1, 10.0)] + [1.0, 0.25]
    magnitudes += [max(sizes) * 10 ** random.uniform(-5, 1) for _ in range(RANDOM)]
    for magnitude in magnitudes:
        yield _short(start + sign * magnitude)
        if low is None and high is None:
            yield -_short(magnitude)
    yield 0.0


def _short(value: float) -> float:
    return float(f"{value:.3g}")
