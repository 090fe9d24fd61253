"""Few models: each dtype, with ties, the ends of its range, and what lies beyond."""

import math

from opmatrix.spec import Case, DType, Model, Random, Values

GREATEST: dict[DType, float] = {
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
    "float32": 3e38,
}


def model(dtype: DType, greatest: float) -> Model:
    # Quotients by 0.25 are beyond the range, and by 3 not representable: they round.
    special = ((greatest, -greatest, math.nan), (greatest, -0.0, 1.0), (1.0, -1.0, 0.0))
    endless = ((math.inf, -math.inf, 2.0),) if dtype in ("float8_e5m2", "float32") else ((0.5, 0.25, 2.0),)
    scale = Values(values=(0.25, 1.0, 3.0, 1.0))
    return Model(
        name=dtype,
        types={"T": dtype},
        dynamic={"x": ("N", "K"), "scale": ("N",)},
        cases=(
            Case(name=f"plain_{dtype}", inputs={"x": Random(shape=(3, 50)), "scale": Values(values=(0.5, 1.5, 0.875))}),
            Case(name=f"special_{dtype}", inputs={"x": Values(values=(*special, *endless)), "scale": scale}),
            Case(
                name=f"sliced_{dtype}",
                inputs={"x": Random(shape=(1, 40), layout="sliced"), "scale": Values(values=(3.0,))},
            ),
            Case(name=f"empty_{dtype}", inputs={"x": Random(shape=(0, 4)), "scale": Random(shape=(0,))}),
        ),
    )


MODELS = tuple(model(dtype, greatest) for dtype, greatest in GREATEST.items())
