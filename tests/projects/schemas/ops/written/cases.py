"""Each argument at its default and at another value, optional inputs present and absent."""

from opmatrix.spec import Case, Model, Random

X, WEIGHT = Random(shape=(5, 6)), Random(shape=(6,))
MASK = Random(shape=(5, 6), mean=0.5, deviation=0.5)
MODELS = (
    Model(
        name="plain",
        types={"T": "float32"},
        attributes={"window": (2, 3), "level": 0.5},
        dynamic={"x": ("H", "W"), "weight": ("W",)},
        cases=(
            Case(name="small", inputs={"x": X, "weight": WEIGHT}),
            Case(name="large", inputs={"x": Random(shape=(9, 11)), "weight": Random(shape=(11,))}),
        ),
    ),
    Model(
        name="given",
        types={"T": "float64"},
        attributes={
            "window": (3, 1), "level": -0.5, "stride": (2, 4), "factor": 0.5, "start": "one", "flips": (0, 1),
            "axis": 0,
        },
        cases=(
            Case(name="all", inputs={"x": X, "weight": WEIGHT, "mask": MASK, "offset": Random(shape=(1,), mean=3.0)}),
        ),
    ),
    Model(
        name="masked",
        types={"T": "float32"},
        attributes={"window": (1, 2), "level": 0.0, "flips": (1, 1)},
        cases=(Case(name="mask", inputs={"x": X, "weight": WEIGHT, "mask": MASK}),),
    ),
    Model(
        name="moved",
        types={"T": "float32"},
        attributes={
            "window": (1, 2), "level": 1.0, "flips": (0, 0), "stride": (2, 1), "factor": 3.0, "start": "one", "axis": 0,
        },
        cases=(Case(name="offset", inputs={"x": X, "weight": WEIGHT, "offset": Random(shape=(1,), mean=3.0)}),),
    ),
)  # fmt: skip
