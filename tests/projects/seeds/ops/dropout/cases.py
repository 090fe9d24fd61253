"""Three seeds, of which one has more than 32 bits, probabilities from 0 to 0.5, and an empty tensor."""

import math

from opmatrix.spec import Case, Model, Random

MODELS = (
    Model(
        name="half",
        types={"T": "float32"},
        attributes={"seed": 7},
        dynamic={"x": ("N", None)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(5, 3))}),
            Case(name="special", inputs={"x": Random(shape=(4, 3), specials={0: math.nan, 1: math.inf, 5: -0.0})}),
            Case(name="empty", inputs={"x": Random(shape=(0, 3))}),
        ),
    ),
    Model(
        name="quarter",
        types={"T": "float64"},
        attributes={"seed": 2**63 - 1, "p": 0.25},
        cases=(Case(name="doubles", inputs={"x": Random(shape=(17,))}),),
    ),
    Model(
        name="few",
        types={"T": "float32"},
        attributes={"seed": 8, "p": 0.125},
        cases=(Case(name="floats", inputs={"x": Random(shape=(9,))}),),
    ),
    Model(
        name="none",
        types={"T": "float64"},
        attributes={"seed": 7, "p": 0.0},
        cases=(Case(name="all", inputs={"x": Random(shape=(3, 3))}),),
    ),
)
