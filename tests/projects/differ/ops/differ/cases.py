"""Several rows, one, a large mean, a NaN, and what takes two threads. No case has seven columns."""

from opmatrix.spec import Case, Model, Random


def inputs(*shape: int, mean: float = 0.0, nan: bool = False) -> dict[str, Random]:
    specials = {1: float("nan")} if nan else {}
    return {"x": Random(shape=shape, mean=mean, specials=specials), "y": Random(shape=shape)}


MODELS = (
    Model(
        name="dynamic",
        types={"T": "float32"},
        dynamic={"x": ("N", "C"), "y": ("N", "C")},
        cases=(
            Case(name="rows", inputs=inputs(3, 5)),
            Case(name="one_row", inputs=inputs(1, 5)),
            Case(name="far", inputs=inputs(1, 5, mean=1e6)),
            Case(name="nan", inputs=inputs(1, 5, nan=True)),
            Case(name="threads", inputs=inputs(1, 4001)),
        ),
    ),
)
