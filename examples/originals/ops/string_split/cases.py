"""Strings with other characters than ASCII, NULs and no pieces; the vectors are of the original's tests and library."""

from opmatrix.spec import Case, FromVectors, Model, Random, Tensor, Values, Vectors

TESTS = "onnxruntime-extensions, test_string_split_cc of test/test_string_ops.py"
COMPUTED = "StringSplit of onnxruntime-extensions 0.15.2 in ONNX Runtime 1.31.1"
NULS = Values(values=("a,,b\0", "", "\0,", "é;日本,😀", ",,"))


def case(name: str, text: Tensor, delimiter: str, *, skip: bool = True) -> Case:
    return Case(
        name=name,
        inputs={"input": text, "delimiter": Values(values=(delimiter,)), "skip_empty": Values(values=(skip,))},
    )


def vectors(name: str, count: int, source: str = COMPUTED) -> Case:
    """Return a case of a file with so many strings."""
    return Case(
        name=name,
        inputs={
            "input": FromVectors(shape=(count,)),
            "delimiter": FromVectors(shape=(1,)),
            "skip_empty": FromVectors(shape=(1,)),
        },
        expected=Vectors(path=f"vectors/{name}.npz", source=source, licence="MIT"),
    )


MODELS = (
    Model(
        name="dynamic",
        dynamic={"input": ("N",)},
        cases=(
            case("nuls", NULS, ",;"),
            case("nuls_kept", NULS, "\0,", skip=False),
            case("random", Random(shape=(200,)), " ,"),
            case("no_strings", Random(shape=(0,)), ","),
            vectors("skip", 4, TESTS),
            vectors("keep", 4, TESTS),
            vectors("several", 6),
            vectors("several_kept", 6),
            vectors("characters", 4),
            vectors("no_pieces", 2),
        ),
    ),
)
