"""Each dtype: all 16 values, odd and even counts, one and no element, and absent inputs and outputs."""

from opmatrix.spec import Case, DType, Model, Random, Values

LOWEST: dict[DType, int] = {"int4": -8, "uint4": 0, "int8": -8}


def model(dtype: DType) -> Model:
    every = tuple(range(LOWEST[dtype], LOWEST[dtype] + 16))
    return Model(
        name=dtype,
        types={"T": dtype},
        dynamic=dict.fromkeys(("x", "y", "others"), ("N",)),
        cases=(
            Case(
                name=f"every_value_{dtype}",
                inputs={"x": Values(values=every), "y": Values(values=every[::-1]), "others": (Values(values=every),)},
            ),
            Case(
                name=f"odd_{dtype}",
                inputs={"x": Random(shape=(37,), deviation=4.0), "y": Random(shape=(37,), deviation=4.0),
                        "others": (Random(shape=(37,), deviation=4.0),)},
            ),
            Case(
                name=f"one_{dtype}",
                inputs={"x": Values(values=(every[0],)), "y": Values(values=(every[0],)),
                        "others": (Values(values=(every[5],)),)},
            ),
            Case(
                name=f"empty_{dtype}",
                inputs={"x": Random(shape=(0,)), "y": Random(shape=(0,)), "others": (Random(shape=(0,)),)},
            ),
        ),
    )  # fmt: skip


ABSENT = Model(
    name="absent",
    types={"T": "int4"},
    dynamic={"x": ("N", "M")},
    absent=("wrapped",),
    cases=(
        Case(name="alone", inputs={"x": Random(shape=(3, 5), deviation=4.0)}),
        Case(name="alone_even", inputs={"x": Random(shape=(2, 2), deviation=4.0)}),
    ),
)

MODELS = (*map(model, LOWEST), ABSENT)
