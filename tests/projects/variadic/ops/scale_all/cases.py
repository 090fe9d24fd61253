"""One, two and three tensors, of different shapes and strides."""

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random

LAYOUTS: tuple[MemoryLayout, ...] = ("contiguous", "transposed")


def model(name: str, dtype: DType, *shapes: tuple[int, ...], scale: float = 0.3) -> Model:
    plain, transposed = (tuple(Random(shape=shape, layout=layout) for shape in shapes) for layout in LAYOUTS)
    cases = (Case(name=name, inputs={"xs": plain}), Case(name=f"{name}_transposed", inputs={"xs": transposed}))
    return Model(name=name, types={"T": dtype}, attributes={"scale": scale}, cases=cases)


MODELS = (
    model("one", "float32", (2, 3)),
    model("two", "float64", (3, 2), (4,)),
    model("three", "float32", (2, 3), (5,), (1, 2, 2)),
    Model(
        name="dynamic",
        types={"T": "float64"},
        attributes={"scale": -2.0},
        dynamic={"xs": ("N", None)},
        names={"ys": "scaled"},
        cases=(
            Case(name="traced", inputs={"xs": (Random(shape=(2, 3)), Random(shape=(2, 3)))}),
            Case(name="larger", inputs={"xs": (Random(shape=(7, 3)), Random(shape=(7, 3)))}),
        ),
    ),
)
