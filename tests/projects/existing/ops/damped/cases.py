"""One dynamic model."""

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="dynamic",
        attributes={"factor": 0.75},
        dynamic={"x": ("N", "M")},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(3, 4))}),
            Case(name="sliced", inputs={"x": Random(shape=(2, 5), layout="sliced")}),
        ),
    ),
)
