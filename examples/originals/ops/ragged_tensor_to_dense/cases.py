"""Rows of all lengths; the vectors are of the original's tests and library."""

from opmatrix.spec import Case, FromVectors, Model, Random, Tensor, Values, Vectors

TESTS = "onnxruntime-extensions, test_string_ragged_string_to_dense_cc of test/test_sentencepiece_ops.py"
COMPUTED = "RaggedTensorToDense of onnxruntime-extensions 0.15.2 in ONNX Runtime 1.31.1"
NONE = Values(values=())


def vectors(name: str, values: int, indices: int) -> Case:
    """Return a case of a file with so many values and indices."""
    shapes = {"unused": (0,), "values": (values,), "default_value": (1,), "indices": (indices,)}
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in shapes.items()},
        expected=Vectors(path=f"vectors/{name}.npz", source=COMPUTED, licence="MIT"),
    )


def case(name: str, unused: Tensor, values: Tensor, indices: tuple[int, ...], missing: int) -> Case:
    return Case(
        name=name,
        inputs={
            "unused": unused,
            "values": values,
            "default_value": Values(values=(missing,)),
            "indices": Values(values=indices),
        },
    )


MODELS = (
    Model(
        name="dynamic",
        dynamic={"unused": ("U",), "values": ("V",), "indices": ("K",)},
        cases=(
            case("rows", Random(shape=(2,)), Random(shape=(9,), deviation=1e12), (0, 3, 3, 8), 5),
            case("large", NONE, Random(shape=(3000,), deviation=9.0), (0, *range(40, 3001, 80), 3000), -2),
            vectors("empty_rows", 3, 4),
            vectors("inner", 4, 3),
            vectors("no_rows", 0, 1),
            Case(
                name="sentences",
                inputs={
                    "unused": NONE,
                    "values": FromVectors(shape=(6,)),
                    "default_value": Values(values=(-1,)),
                    "indices": FromVectors(shape=(3,)),
                },
                expected=Vectors(path="test_data_set_0", source=TESTS, licence="MIT"),
            ),
        ),
    ),
)
