"""Rows of both signs, the first with NaN, which no output of opcheck may be."""

import math

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="rows",
        types={"T": "float32"},
        attributes={"step": 3},
        dynamic={"x": ("N", "C"), "calls": ("N",)},
        cases=(
            Case(name="nan", inputs={"x": Random(shape=(2, 3), specials={1: math.nan}), "calls": Random(shape=(2,))}),
            Case(name="plain", inputs={"x": Random(shape=(2, 3)), "calls": Random(shape=(2,), deviation=100.0)}),
            Case(name="more", inputs={"x": Random(shape=(5, 4)), "calls": Random(shape=(5,), deviation=100.0)}),
        ),
    ),
)
