"""The case of permute_rows."""

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="plain",
        cases=(Case(name="plain", inputs={"x": Random(shape=(4, 2)), "order": Random(shape=(4,))}),),
    ),
)  # fmt: skip
