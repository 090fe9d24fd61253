"""One model per dtype, for any length."""

from opmatrix.spec import Case, Model, Random

MODELS = tuple(
    Model(
        name=dtype,
        types={"T": dtype},
        dynamic={"x": ("N",)},
        cases=(
            Case(name=f"{dtype}_few", inputs={"x": Random(shape=(7,))}),
            Case(name=f"{dtype}_one", inputs={"x": Random(shape=(1,))}),
            Case(name=f"{dtype}_many", inputs={"x": Random(shape=(1003,), deviation=10.0)}),
            Case(name=f"{dtype}_empty", inputs={"x": Random(shape=(0,))}),
        ),
    )
    for dtype in ("float32", "float64")
)
