"""Numbers and strings, of any rank."""

from opmatrix.spec import Case, Model, Values

MODELS = (
    Model(
        name="numbers",
        types={"T": "int64"},
        cases=(Case(name="numbers", inputs={"x": Values(values=((0, 1), (2, 0))), "other": Values(values=(-7,))}),),
    ),
    Model(
        name="texts",
        types={"T": "string"},
        dynamic={"x": ("N",)},
        cases=(
            Case(name="texts", inputs={"x": Values(values=("", "a", "\0", "")), "other": Values(values=("none",))}),
            Case(name="nothing", inputs={"x": Values(values=()), "other": Values(values=("none",))}),
        ),
    ),
    Model(
        name="two",
        types={"T": "string"},
        absent=("others",),
        cases=(Case(name="two", inputs={"x": Values(values=("", "b")), "other": Values(values=("c",))}),),
    ),
)
