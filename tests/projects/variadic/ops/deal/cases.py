"""One player, two and three, with cards that remain and without."""

from opmatrix.spec import Case, DType, Model, Random


def model(dtype: DType, players: int, *sizes: int) -> Model:
    cases = (
        Case(name=f"{dtype}_{size}_{players}", inputs={"pile": Random(shape=(size,), deviation=4.0)}) for size in sizes
    )
    return Model(
        name=f"{dtype}_{players}",
        types={"T": dtype},
        attributes={"players": players},
        dynamic={"pile": ("N",)},
        cases=tuple(cases),
    )


MODELS = (
    model("string", 3, 7, 12),
    model("string", 1, 4),
    model("uint4", 2, 9, 4),
    model("uint4", 3, 10),
    model("int64", 2, 6, 3),
    model("int64", 3, 8),
)
