"""One to three parts, with columns that remain and without."""

from opmatrix.spec import Case, DType, Model, Random


def model(name: str, dtype: DType, shape: tuple[int, int], count: int) -> Model:
    first, more = (Case(name=n, inputs={"x": Random(shape=s, deviation=9.0)})
                   for n, s in ((name, shape), (f"{name}_more", (shape[0] + 3, shape[1]))))  # fmt: skip
    return Model(
        name=name, types={"T": dtype}, attributes={"count": count}, dynamic={"x": ("N", None)}, cases=(first, more)
    )


MODELS = (
    model("one", "float32", (2, 3), 1),
    model("three", "float32", (2, 10), 3),
    model("two", "int64", (3, 5), 2),
    model("three_ints", "int64", (2, 7), 3),
)
