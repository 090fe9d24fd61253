"""Rows of all lengths; the vectors are computed by the original's library."""

from opmatrix.spec import Case, FromVectors, Model, Random, Tensor, Values, Vectors

COMPUTED = "StringRaggedTensorToDense of onnxruntime-extensions 0.15.2 in ONNX Runtime 1.31.1"


def vectors(name: str, values: int, indices: int, path: str = "") -> Case:
    """Return a case of a file with so many values and indices."""
    shapes = {"unused": (0,), "values": (values,), "indices": (indices,), "default_value": (indices,)}
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in shapes.items()},
        expected=Vectors(path=path or f"vectors/{name}.npz", source=COMPUTED, licence="MIT"),
    )


def case(name: str, values: Tensor, indices: tuple[int, ...]) -> Case:
    return Case(
        name=name,
        inputs={
            "unused": Random(shape=(2,)),
            "values": values,
            "indices": Values(values=indices),
            "default_value": Random(shape=(len(indices),)),
        },
    )


MODELS = (
    Model(
        name="dynamic",
        dynamic={"unused": ("U",), "values": ("V",), "indices": ("K",), "default_value": ("K",)},
        cases=(
            case("nuls", Values(values=("a\0", "", "é", "\0", "😀" * 9)), (0, 2, 2, 5)),
            case("large", Random(shape=(900,)), (0, *range(40, 901, 80), 900)),
            vectors("rows", 5, 4, path="test_data_set_0"),
            vectors("inner", 3, 3),
            vectors("one_row", 2, 2),
        ),
    ),
)
