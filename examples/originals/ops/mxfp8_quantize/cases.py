"""Models of each dtype and of several ranks; the vectors are what the original's own reference computes."""

import math

from opmatrix.spec import Case, DType, FromVectors, Model, Random, Tensor, Vectors

SOURCE = "TransformerEngine 02e278f, compute_ref of tests/cpp/operator/test_cast_mxfp8.cu"


def case(name: str, tensor: Tensor) -> Case:
    return Case(name=name, inputs={"tensor": tensor})


def vectors(dtype: DType) -> Case:
    """Return the case of the original's values: blocks of many sizes, with ties, zeros, subnormal and huge numbers."""
    return Case(
        name=f"original_{dtype}",
        inputs={"tensor": FromVectors(shape=(64, 96))},
        expected=Vectors(path=f"vectors/{dtype}.npz", source=SOURCE, licence="Apache-2.0"),
    )


def model(dtype: DType, *more: Case) -> Model:
    return Model(
        name=dtype,
        types={"T": dtype},
        dynamic={"tensor": ("N", "K")},
        cases=(case(f"plain_{dtype}", Random(shape=(3, 64), deviation=5.0)), vectors(dtype), *more),
    )


SPECIAL = {0: math.nan, 33: math.inf, 65: -math.inf, 97: 3e38, 130: 1e-45, 160: 448.0, 192: -0.0, 200: 1e-39}
FLOAT32 = (
    case("special", Random(shape=(7, 32), specials=SPECIAL)),
    case("tiny", Random(shape=(2, 32), deviation=1e-38)),
    case("part_of_a_block", Random(shape=(2, 40))),
    case("many_blocks", Random(shape=(130, 160), layout="sliced")),
    case("empty", Random(shape=(0, 32))),
)
ANY_RANK = tuple(
    Model(
        name=f"rank_{len(shape)}",
        types={"T": "float16"},
        cases=(case(f"rank_{len(shape)}", Random(shape=shape, layout="transposed")),),
    )
    for shape in ((64,), (2, 3, 4, 32))
)
MODELS = (model("float32", *FLOAT32), model("float16"), model("bfloat16"), *ANY_RANK)
