"""Few models: each dtype, values at the limits of float16, and sums that only float holds."""

import math

from opmatrix.spec import Case, DType, Model, Random, Values


def model(dtype: DType, *cases: Case) -> Model:
    plain = Case(
        name=f"plain_{dtype}", inputs={"x": Random(shape=(3, 5)), "weights": Values(values=(0.5, 1.0, 0.0, 2.0, 0.25))}
    )
    return Model(
        name=dtype,
        types={"T": dtype},
        attributes={"scale": 0.75},
        dynamic={"x": ("N", "K"), "weights": ("K",)},
        cases=(plain, *cases),
    )


SPECIAL = Case(
    name="special",
    inputs={
        "x": Values(values=((65504.0, -65504.0, 6e-08), (math.inf, 1.0, 2.0), (math.nan, 1.0, 2.0))),
        "weights": Values(values=(1.0, 1.0, 1.0)),
    },
)
# A sum that is rounded to float16 after each element stays at 2048, and one in bfloat16 at 256.
MANY = Case(
    name="many",
    inputs={
        "x": Random(shape=(2, 3000), mean=1.0, deviation=0.0),
        "weights": Random(shape=(3000,), mean=1.0, deviation=0.0, layout="sliced"),
    },
)
MANY_BRAIN = Case(name="many_brain", inputs=MANY.inputs)
EMPTY = Case(name="empty", inputs={"x": Random(shape=(2, 0)), "weights": Random(shape=(0,))})
MODELS = (model("float16", SPECIAL, MANY, EMPTY), model("bfloat16", MANY_BRAIN), model("float32"))
