"""With and without the other tensor."""

from opmatrix.spec import Case, Model, Random

X = Random(shape=(3, 4))
MODELS = (
    Model(
        name="plain",
        attributes={"factor": 1.5},
        dynamic={"x": ("N", "C"), "weight": ("N", "C")},
        cases=(Case(name="plain", inputs={"x": X, "weight": X}),),
    ),
    Model(
        name="added",
        attributes={"factor": -0.5},
        cases=(Case(name="added", inputs={"x": X, "weight": X, "other": X}),),
    ),
    Model(
        name="signed",
        attributes={"factor": 0.5, "is_signed": True},
        cases=(Case(name="subtracted", inputs={"x": X, "weight": X, "other": X}),),
    ),
)
