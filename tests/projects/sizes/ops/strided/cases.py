"""Models with static and dynamic sizes; in one of them a Linear follows the sizes that the kernel decides."""

from opmatrix.spec import Case, Model, Random, Values


def case(name, *batch, size=5, taps=3, groups=1, ends=4, pads=None, first=None, second=None):
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


def with_linear(strided, x, weight, factors, counts, pads, first, second):
    """Multiply the kept rows by a matrix, which needs their static size."""
    y, largest, repeated, flat, kept, rows = strided(x, weight, factors, counts, pads, first, second)
    return y, largest, repeated, flat, kept @ factors, rows


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
        name="linear",
        dynamic={"x": ("B", None)},
        around=with_linear,
        cases=(case("linear", 6), case("linear_of_one", 1)),
    ),
)
