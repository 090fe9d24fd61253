"""Models of ranks, axes and dtypes; the vectors are those of torch_scatter's tests and of its CPU code."""

import math

from opmatrix.spec import AttributeValue, Case, DType, FromVectors, Model, Random, Tensor, Values, Vectors

COMMIT = "648dda3"
TEST = f"torch_scatter {COMMIT}, test/test_scatter.py"
COMPUTED = f"torch_scatter {COMMIT}, csrc/cpu/scatter_cpu.cpp"
DTYPES: tuple[DType, ...] = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
)  # fmt: skip
Shape = tuple[int, ...]


def case(
    name: str, src: Tensor, index: Shape, *, out: Shape | None = None, places: float = 3.0, given: Tensor | None = None
) -> Case:
    """Return a case with an index of a shape, or one that is `given`."""
    inputs: dict[str, Tensor | None] = {
        "src": src,
        "index": given or Random(shape=index, deviation=places),
        "out": None if out is None else Random(shape=out),
    }
    return Case(name=name, inputs=inputs)


def vectors(name: str, src: Shape, index: Shape, out: Shape | None = None, *, source: str = COMPUTED) -> Case:
    """Return a case of a file."""
    shapes = {"src": src, "index": index} | ({} if out is None else {"out": out})
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in shapes.items()},
        expected=Vectors(path=f"vectors/{name}.npz", source=source, licence="MIT"),
    )


def model(
    name: str, dtype: DType, axes: tuple[str, ...], *cases: Case, index: int, **attributes: AttributeValue
) -> Model:
    """Return a model with dynamic axes, of which the index has the first `index`."""
    dynamic = {"src": axes, "index": axes[:index]}
    if cases[0].inputs.get("out"):
        dynamic["out"] = ("B", "S", "K")
    return Model(name=name, types={"T": dtype}, attributes=attributes, dynamic=dynamic, cases=cases)


SPECIAL = {0: math.nan, 1: math.inf, 2: -math.inf, 3: -0.0, 4: -1.7976931348623157e308}
VECTOR = model(
    "vector", "float64", ("N",),
    case("traced", Random(shape=(9,)), (9,)),
    case("special", Random(shape=(8,), specials=SPECIAL), (8,), places=1.0),
    case("lowest", Random(shape=(5,), specials=SPECIAL), (5,), given=Values(values=(0, 5, 2, 3, 4))),
    case("no_numbers", Random(shape=(0,)), (0,)),
    vectors("test_0", (6,), (6,), source=TEST),
    vectors("vector", (40,), (40,)),
    index=1,
)  # fmt: skip
INNER = model(
    "inner", "float32", ("B", "N", "K"),
    case("traced_inner", Random(shape=(2, 5, 3)), (2, 5)),
    case("strided", Random(shape=(3, 4, 2), layout="transposed"), (3, 4)),
    vectors("test_3", (2, 3, 2), (2, 3), source=TEST),
    vectors("test_5", (2, 2, 2), (2, 2), source=TEST),
    vectors("inner", (4, 9, 5), (4, 9)),
    index=2, dim=-2,
)  # fmt: skip


def sized(dtype: DType) -> Model:
    """Return the model with a given size, and a vector as index."""
    numbers = Random(shape=(6, 2), deviation=9.0)
    return model(
        f"sized_{dtype}", dtype, ("N", "K"),
        case(f"sized_{dtype}", numbers, (6,), given=Values(values=(0, 3, 3, 6, 0, 1))),
        vectors(f"test_1_{dtype}", (6, 2), (6,)),
        case(f"no_rows_{dtype}", Random(shape=(0, 3)), (0,)),
        index=1, dim=0, dim_size=25,
    )  # fmt: skip


PLACES = Values(values=((0, 2, 2, 3, 0), (1, 1, 24, 3, 3)))


def given_out(dtype: DType) -> Model:
    """Return the model that begins with given numbers."""
    return model(
        f"out_{dtype}", dtype, ("B", "N", "K"),
        case(f"out_{dtype}", Random(shape=(2, 5, 3), deviation=2.0), (2, 5), out=(2, 25, 3), given=PLACES),
        vectors(f"test_out_{dtype}", (2, 3, 2), (2, 3), (2, 3, 2)),
        index=2, dim=1,
    )  # fmt: skip


MODELS = (VECTOR, INNER, *map(sized, DTYPES), *map(given_out, DTYPES))
