"""Models with static and dynamic sizes; in one of them a Linear follows the sizes that the kernel decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmatrix.spec import Case, Model, Random, Values


def case(
    name: str,
    *batch: int,
    size: int = 5,
    taps: int = 3,
    groups: int = 1,
    ends: int = 4,
    pads: tuple[int, ...] | None = None,
    first: int | None = None,
    second: int | None = None,
) -> Case:
    """Return a case of these sizes."""
    return Case(
        name=name,
        inputs={
            "x": Random(shape=(*batch, size)),
            "weight": Random(shape=(groups * taps,)),
            "factors": Random(shape=(size, size)),
            "counts": Values(values=tuple(range(ends))),
            "pads": None if pads is None else Values(values=pads),
            "first": None if first is None else Random(shape=(first,)),
            "second": None if second is None else Random(shape=(3, second)),
        },
    )


def with_linear(strided: Callable[..., Any], x: Any, weight: Any, factors: Any, *others: Any) -> tuple[Any, ...]:
    """Multiply the kept rows by a matrix, which needs their static size."""
    y, largest, repeated, flat, kept, *more = strided(x, weight, factors, *others)
    return y, largest, repeated, flat, kept @ factors, *more


MODELS = (
    Model(name="static", cases=(case("plain", 2, 4),)),
    Model(
        name="strides",
        attributes={"dim": 0, "groups": 2, "k": 3, "padding": (1,), "stride": (2,), "dilation": (2,)},
        cases=(case("strides", 4, size=6, groups=2, pads=(1, 2, 3, 4), first=3, second=3),),
    ),
    Model(name="vector", cases=(case("vector"),)),
    Model(name="second", cases=(case("second", 2, second=4),)),
    Model(
        name="dynamic",
        attributes={"dim": 1},
        dynamic={"x": ("B", "H", None)},
        cases=(case("three", 2, 3), case("more", 3, 5), case("one", 1, 2)),
    ),
    Model(
        name="computed",
        attributes={"stride": (2,), "padding": (1,)},
        dynamic={"x": ("B", "L"), "weight": ("G",), "factors": ("L", "L"), "counts": ("E",)},
        cases=(case("computed", 2, size=9, taps=4), case("computed_more", 3, size=4, taps=6), case("few", 1, ends=1)),
    ),
    Model(
        name="linear",
        dynamic={"x": ("B", None)},
        around=with_linear,
        cases=(case("linear", 6), case("linear_of_one", 1)),
    ),
)
