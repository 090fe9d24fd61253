"""The models that dual_residual is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random, Tensor


def inputs(*shape: int, layout: MemoryLayout = "contiguous", mean: float = 0.0) -> dict[str, Tensor]:
    """Return two different tensors of `shape`; only x has another layout."""
    return {"x": Random(shape=shape, layout=layout, mean=mean), "y": Random(shape=shape)}


def special(*shape: int) -> dict[str, Tensor]:
    """Return tensors in which NaN and infinities meet each other and numbers."""
    return {
        "x": Random(shape=shape, specials={0: math.nan, 3: math.inf, 4: -math.inf, 5: math.inf, 6: 1e-310}),
        "y": Random(shape=shape, specials={1: math.nan, 3: math.inf, 4: math.inf}),
    }


def static(dtype: DType) -> Model:
    return Model(
        name=f"static_{dtype}",
        types={"T": dtype},
        attributes={"alpha": 0.5},  # as in the seed
        cases=(
            Case(name=f"seed_{dtype}", inputs=inputs(1, 3, 4, 5)),
            Case(name=f"special_{dtype}", inputs=special(1, 3, 4, 5)),
            Case(name=f"transposed_{dtype}", inputs=inputs(1, 3, 4, 5, layout="transposed")),
            Case(name=f"sliced_{dtype}", inputs=inputs(1, 3, 4, 5, layout="sliced")),
            Case(name=f"flipped_{dtype}", inputs=inputs(1, 3, 4, 5, layout="flipped")),
        ),
    )


def dynamic(dtype: DType) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        attributes={"alpha": -1.7},  # no number that a float holds exactly
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(2, 3)),
            Case(name=f"empty_{dtype}", inputs=inputs(0, 4)),
            Case(name=f"one_element_{dtype}", inputs=inputs(1, 1)),
            Case(name=f"threads_{dtype}", inputs=inputs(257, 311)),
            Case(name=f"large_mean_{dtype}", inputs=inputs(5, 7, mean=1e6)),
        ),
    )


SCALAR = Model(
    name="scalar",
    types={"T": "float32"},
    attributes={"alpha": 2.0},
    cases=(Case(name="scalar", inputs=inputs()),),
)


def half(dtype: DType) -> Model:
    numbers = inputs(5, 7, mean=100.0)
    return Model(
        name=dtype,
        types={"T": dtype},
        attributes={"alpha": -1.7},
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(Case(name=f"plain_{dtype}", inputs=numbers), Case(name=f"special_{dtype}", inputs=special(2, 4))),
    )


MODELS = (
    *(make(dtype) for make in (static, dynamic) for dtype in ("float32", "float64")),
    SCALAR,
    half("float16"),
    half("bfloat16"),
)
