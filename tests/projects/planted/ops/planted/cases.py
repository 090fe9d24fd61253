"""One model with two cases."""

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="plain",
        dynamic={"x": ("N",), "w": ("N",)},
        cases=(
            Case(name="three", inputs={"x": Random(shape=(3,)), "w": Random(shape=(3,))}),
            Case(name="four", inputs={"x": Random(shape=(4,)), "w": Random(shape=(4,))}),
        ),
    ),
)
