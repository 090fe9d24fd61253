"""The models that custom_op_two is tried in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, Model, Random, Values

HALVES = (-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997, 0.50000006, -0.0, 0.0)
LARGE = (8388607.5, 8388608.0, -4194303.5, 4503599627370495.5, 4503599627370497.0, 1e30, -1e38)
SPECIAL = (math.nan, math.inf, -math.inf, 1e-310, 1e-40, -1e-40)


def dynamic(dtype: DType) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("N", "C")},
        cases=(
            Case(name=f"exported_{dtype}", inputs={"x": Random(shape=(3, 5), deviation=10.0)}),
            Case(name=f"empty_{dtype}", inputs={"x": Random(shape=(0, 5))}),
            Case(name=f"one_element_{dtype}", inputs={"x": Random(shape=(1, 1))}),
            Case(name=f"threads_{dtype}", inputs={"x": Random(shape=(331, 211), deviation=10.0)}),
        ),
    )


def special(dtype: DType) -> Model:
    return Model(
        name=f"special_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("N",)},
        cases=(
            Case(name=f"halves_{dtype}", inputs={"x": Values(values=HALVES)}),
            Case(name=f"large_{dtype}", inputs={"x": Values(values=LARGE)}),
            Case(name=f"special_{dtype}", inputs={"x": Values(values=SPECIAL)}),
        ),
    )


EXTREME = Model(
    name="extreme_int64",
    types={"T": "int64"},
    cases=(Case(name="extreme_int64", inputs={"x": Values(values=(2**63 - 1, -(2**63), 2**53 + 1, 0))}),),
)

MODELS = (
    *(dynamic(dtype) for dtype in ("float32", "float64", "int64")),
    *(special(dtype) for dtype in ("float32", "float64")),
    EXTREME,
)
