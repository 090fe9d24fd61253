"""The models that custom_op_one is tried in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, Model, Random, Tensor, Values


def inputs(*shape: int) -> dict[str, Tensor]:
    return {"x": Random(shape=shape, deviation=100.0), "y": Random(shape=shape, deviation=100.0)}


def dynamic(dtype: DType) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(3, 5)),
            Case(name=f"empty_{dtype}", inputs=inputs(0, 5)),
            Case(name=f"one_element_{dtype}", inputs=inputs(1, 1)),
            Case(name=f"threads_{dtype}", inputs=inputs(331, 211)),
        ),
    )


def special(dtype: DType) -> Model:
    return Model(
        name=f"special_{dtype}",
        types={"T": dtype},
        cases=(
            Case(
                name=f"special_{dtype}",
                inputs={
                    "x": Values(values=(math.nan, math.inf, -math.inf, math.inf, -0.0, 1e-310)),
                    "y": Values(values=(1.0, 1.0, -math.inf, -math.inf, -0.0, 0.0)),
                },
            ),
        ),
    )


EXTREME = Model(
    name="extreme_int64",
    types={"T": "int64"},
    cases=(
        Case(
            name="extreme_int64",
            inputs={
                "x": Values(values=(2**63 - 1, -(2**63), 2**53 + 1, -1)),
                "y": Values(values=(1, -1, 2, 1)),
            },
        ),
    ),
)

SCALAR = Model(name="scalar", types={"T": "float32"}, cases=(Case(name="scalar", inputs=inputs()),))

MODELS = (
    *(dynamic(dtype) for dtype in ("float32", "float64", "int64")),
    *(special(dtype) for dtype in ("float32", "float64")),
    EXTREME,
    SCALAR,
)
