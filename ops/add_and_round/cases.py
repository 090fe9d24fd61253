"""The models that add_and_round is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random, Values

HALVES = (-2.75, -1.25, -0.75, -0.25, -0.0, 0.25, 0.75, 1.25, 2.75)  # doubled they lie between two whole numbers


def static(dtype: DType) -> Model:
    def random(name: str, layout: MemoryLayout = "contiguous") -> Case:
        return Case(name=f"{name}_{dtype}", inputs={"x": Random(shape=(4, 9), deviation=20.0, layout=layout)})

    return Model(
        name=f"static_{dtype}",
        types={"T": dtype},
        cases=(random("plain"), random("transposed", "transposed"), random("sliced", "sliced")),
    )


def halves(dtype: DType) -> Model:
    return Model(
        name=f"halves_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("N",)},
        cases=(
            Case(name=f"halves_{dtype}", inputs={"x": Values(values=HALVES)}),
            Case(
                name=f"special_{dtype}",
                inputs={"x": Random(shape=(5,), specials={0: math.nan, 1: math.inf, 2: -math.inf, 3: 1e38})},
            ),
            Case(name=f"empty_{dtype}", inputs={"x": Random(shape=(0,))}),
            Case(name=f"large_{dtype}", inputs={"x": Random(shape=(4099,), deviation=1e6)}),
        ),
    )


WHOLE = Model(
    name="whole",
    types={"T": "int64"},
    dynamic={"x": ("N",)},
    cases=(
        Case(name="whole", inputs={"x": Values(values=(-3, -1, 0, 1, 2, 2**52 + 1))}),
        Case(name="extreme", inputs={"x": Values(values=(-(2**62), 2**62 - 1))}),
    ),
)
MODELS = (*(make(dtype) for make in (static, halves) for dtype in ("float32", "float64")), WHOLE)
