"""Rows of both signs."""

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="rows",
        types={"T": "float32"},
        attributes={"step": 3},
        dynamic={"x": ("N", "C"), "calls": ("N",)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(2, 3)), "calls": Random(shape=(2,), deviation=100.0)}),
            Case(name="more", inputs={"x": Random(shape=(5, 4)), "calls": Random(shape=(5,), deviation=100.0)}),
        ),
    ),
)
