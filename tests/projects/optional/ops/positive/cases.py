"""Each combination of what a node may leave out, and of what the attribute turns off."""

from opmatrix.spec import Case, DType, Model, Random, Values

NAN = float("nan")


def model(name: str, dtype: DType, *absent: str, masked: bool) -> Model:
    return Model(
        name=name,
        types={"T": dtype},
        attributes={"return_mask": masked},
        dynamic={"x": ("N", None)},
        absent=absent,
        cases=(
            Case(name=name, inputs={"x": Random(shape=(4, 3))}),
            Case(name=f"{name}_nan", inputs={"x": Values(values=((1.0, NAN, -2.0),))}),
            Case(name=f"{name}_empty", inputs={"x": Random(shape=(0, 3))}),
        ),
    )


MODELS = (
    model("all", "float32", masked=True),
    model("all_wide", "float64", masked=True),
    model("off", "float32", masked=False),
    model("off_and_absent", "float32", "mask", masked=False),
    model("unmasked", "float32", "mask", masked=True),
    model("unplaced", "float32", "places", masked=True),
    model("without_rest", "float32", "rest", masked=True),
    model("alone", "float64", "places", "mask", "rest", masked=False),
)
