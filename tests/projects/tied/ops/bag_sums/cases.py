"""Cases of bag_sums: its random inputs obey the rules."""

from opmatrix.spec import Case, Model, Random, Values

MODELS = (
    Model(
        name="plain",
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(4, 2)), "offsets": Values(values=(0, 2, 2))}),
        ),
    ),
    Model(
        name="all",
        attributes={"limit": 0.5},
        cases=(
            Case(
                name="all",
                inputs={
                    "x": Random(shape=(5, 3)),
                    "offsets": Random(shape=(3,)),
                    "weight": Random(shape=(5,)),
                    "codes": (Random(shape=(3,)), Random(shape=(3,))),
                },
            ),
        ),
    ),
)  # fmt: skip
