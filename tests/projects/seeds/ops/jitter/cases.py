"""With a seed and without, and an empty tensor."""

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="seeded",
        attributes={"seed": 2**32 - 1, "amount": 0.5},
        dynamic={"x": ("N",)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(6,))}),
            Case(name="empty", inputs={"x": Random(shape=(0,))}),
        ),
    ),
    Model(name="still", cases=(Case(name="same", inputs={"x": Random(shape=(2, 2))}),)),
    Model(name="other", attributes={"seed": 1}, cases=(Case(name="one", inputs={"x": Random(shape=(2, 2))}),)),
)
