"""A model with another slope than the default, and a dynamic one."""

from opmatrix.spec import Case, Model, Random

X = Random(shape=(3, 2, 4, 2))
MODELS = (
    Model(name="steep", domain_version=2, attributes={"slope": 0.5}, cases=(Case(name="steep", inputs={"x": X}),)),
    Model(
        name="dynamic",
        dynamic={"x": ("N", None, None, None)},
        cases=(
            Case(name="exported", inputs={"x": X}),
            Case(name="more", inputs={"x": Random(shape=(5, 2, 4, 2))}),
        ),
    ),
)
