"""The models that inverse is exported in, and the cases that run through each."""

from typing import Any

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random, Values


def plus_x(inverse: Any, x: Any) -> Any:
    """The tutorial's model."""
    return inverse(x) + x


SEED = Model(
    name="seed",
    types={"T": "float32"},
    around=plus_x,
    cases=(
        Case(name="seed", inputs={"x": Random(shape=(3, 3))}),
        Case(name="two_by_two", inputs={"x": Values(values=((4.0, 7.0, 1.0), (2.0, 6.0, 0.0), (0.0, 0.0, 1.0)))}),
    ),
)


def static(dtype: DType) -> Model:
    def case(name: str, layout: MemoryLayout = "contiguous") -> Case:
        return Case(name=f"{name}_{dtype}", inputs={"x": Random(shape=(2, 5, 5), layout=layout)})

    return Model(
        name=f"static_{dtype}",
        types={"T": dtype},
        cases=(case("plain"), case("transposed", "transposed"), case("sliced", "sliced"), case("flipped", "flipped")),
    )


def dynamic(dtype: DType) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("N", "M", "M")},
        around=plus_x,
        cases=(
            Case(name=f"exported_{dtype}", inputs={"x": Random(shape=(3, 4, 4))}),
            Case(name=f"one_number_{dtype}", inputs={"x": Values(values=(((-8.0,),),))}),
            Case(name=f"many_{dtype}", inputs={"x": Random(shape=(37, 3, 3))}),
            Case(name=f"empty_batch_{dtype}", inputs={"x": Random(shape=(0, 3, 3))}),
        ),
    )


MODELS = (SEED, *(make(dtype) for make in (static, dynamic) for dtype in ("float32", "float64")))
