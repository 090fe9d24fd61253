"""Cases of gather_rows: given indices, and random ones, which obey the rule."""

from opmatrix.spec import Case, Model, Random, Values

MODELS = tuple(
    Model(
        name=dtype,
        types={"T": dtype},
        dynamic={"x": ("N", "C"), "index": ("M",)},
        cases=(
            Case(name=f"plain_{dtype}", inputs={"x": Random(shape=(3, 4)), "index": Values(values=(2, 0, 2, 1))}),
            Case(name=f"random_{dtype}", inputs={"x": Random(shape=(5, 2)), "index": Random(shape=(7,))}),
        ),
    )
    for dtype in ("float32", "float64")
)
