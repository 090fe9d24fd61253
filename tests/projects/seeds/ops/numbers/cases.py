"""The default, and the seed whose first five numbers are published."""

from opmatrix.spec import Case, FromVectors, Model, Random, Vectors

PUBLISHED = Vectors(
    path="vectors/published.npz", source="rosettacode.org, Pseudo-random numbers/Splitmix64", licence="GFDL-1.3"
)

MODELS = (
    Model(
        name="default",
        dynamic={"x": ("N",)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(3,))}),
            Case(name="empty", inputs={"x": Random(shape=(0,))}),
        ),
    ),
    Model(
        name="published",
        attributes={"seed": 1234567},
        cases=(
            Case(name="traced", inputs={"x": Random(shape=(5,))}),
            Case(name="five", inputs={"x": FromVectors(shape=(5,))}, expected=PUBLISHED),
        ),
    ),
)
