"""Models of strides, paddings, dilations and groups; the vectors are those of mmcv's tests and of its CPU code."""

import math

from opmatrix.spec import AttributeValue, Case, DType, FromVectors, Model, Random, Tensor, Vectors

COMMIT = "a8073c7"
TEST = f"mmcv {COMMIT}, tests/test_ops/test_modulated_deform_conv.py"
COMPUTED = f"mmcv {COMMIT}, mmcv/ops/csrc/pytorch/cpu/modulated_deform_conv.cpp"

Shape = tuple[int, ...]
SPECIAL = {0: math.nan, 1: math.inf, 2: -math.inf}


def shapes(
    n: int, channels: int, size: tuple[int, int], filters: int, kernel: tuple[int, int], out: tuple[int, int],
    *, groups: int = 1, deform_groups: int = 1,
) -> dict[str, Shape]:  # fmt: skip
    taps = deform_groups * kernel[0] * kernel[1]
    return {
        "x": (n, channels, *size),
        "offset": (n, 2 * taps, *out),
        "mask": (n, taps, *out),
        "weight": (filters, channels // groups, *kernel),
        "bias": (filters,),
    }


def case(
    name: str, of: dict[str, Shape], *, bias: bool = True, deviation: float = 1.0, special: bool = False,
    nan_at: int | None = None,
) -> Case:  # fmt: skip
    """Return a case with offsets of about `deviation` pixels, and a NaN at an index of x."""
    drawn: dict[str, Tensor | None] = {
        part: Random(shape=shape, mean=0.5 * (part == "mask"), deviation=deviation if part == "offset" else 1.0)
        for part, shape in of.items()
    }
    if special:
        drawn |= {part: Random(shape=of[part], specials=SPECIAL) for part in ("x", "offset")}
    if nan_at is not None:
        drawn["x"] = Random(shape=of["x"], specials={nan_at: math.nan})
    return Case(name=name, inputs=drawn if bias else {**drawn, "bias": None})


def vectors(name: str, of: dict[str, Shape], *, bias: bool = True, source: str = COMPUTED) -> Case:
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in of.items() if bias or part != "bias"},
        expected=Vectors(path=f"vectors/{name}.npz", source=source, licence="Apache-2.0"),
    )


PADDED: dict[str, AttributeValue] = {"padding": (1, 1)}
GROUPED: dict[str, AttributeValue] = {
    "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2, "deform_groups": 3,
}  # fmt: skip
MMCV = shapes(1, 1, (3, 3), 1, (2, 2), (4, 4))
IN_GROUPS = shapes(2, 6, (7, 6), 4, (3, 2), (4, 8), groups=2, deform_groups=3)


def padded(dtype: DType) -> Model:
    """Return the model of mmcv's test, which has no bias, with other sizes."""
    return Model(
        name=f"padded_{dtype}",
        types={"T": dtype},
        attributes=PADDED,
        dynamic={"x": ("N", None, "H", "W")} | dict.fromkeys(("offset", "mask"), ("N", None, "P", "Q")),
        cases=(
            case(f"traced_{dtype}", shapes(2, 1, (5, 4), 1, (2, 2), (6, 5)), bias=False),
            vectors(f"test_{dtype}", MMCV, bias=False, source=TEST),
            case(f"special_{dtype}", shapes(1, 1, (4, 4), 1, (2, 2), (5, 5)), bias=False, special=True),
            # A NaN at the beginning of the last row, next to which the kernel has the zeros for samples far outside.
            case(f"far_{dtype}", shapes(1, 1, (6, 3), 1, (2, 2), (7, 4)), bias=False, deviation=9.0, nan_at=15),
            case(f"empty_{dtype}", shapes(0, 1, (4, 4), 1, (2, 2), (5, 5)), bias=False),
        ),
    )  # fmt: skip


def grouped(dtype: DType) -> Model:
    return Model(
        name=f"grouped_{dtype}",
        types={"T": dtype},
        attributes=GROUPED,
        cases=(case(f"drawn_{dtype}", IN_GROUPS), vectors(f"grouped_{dtype}", IN_GROUPS)),
    )


def wide(dtype: DType) -> Model:
    """Return a model with more channels, filters and pixels than a vector, a tile and a block of the kernel have."""
    of = shapes(1, 21, (12, 13), 19, (3, 3), (10, 11))
    return Model(name=f"wide_{dtype}", types={"T": dtype}, cases=(case(f"wide_{dtype}", of),))


PLAIN = Model(
    name="plain",
    types={"T": "float32"},
    cases=(case("plain", shapes(1, 3, (5, 6), 2, (3, 3), (3, 4))),),
)
DTYPES: tuple[DType, ...] = ("float32", "float64", "float16")
MODELS = (*map(padded, DTYPES), *map(grouped, DTYPES), *map(wide, DTYPES), PLAIN)
