"""Models as those of modulated_deform_conv; the vectors are what mmcv's code for the CPU computes."""

import math

from opmatrix.spec import AttributeValue, Case, DType, FromVectors, Model, Random, Tensor, Vectors

COMPUTED = "mmcv a8073c7, mmcv/ops/csrc/pytorch/modulated_deform_conv.cpp and its CPU kernels"

Shape = tuple[int, ...]
SPECIAL = {0: math.nan, 1: math.inf, 2: -math.inf}


def shapes(
    n: int, channels: int, size: tuple[int, int], filters: int, kernel: tuple[int, int], out: tuple[int, int],
    *, groups: int = 1, deform_groups: int = 1,
) -> dict[str, Shape]:  # fmt: skip
    taps = deform_groups * kernel[0] * kernel[1]
    return {
        "grad_y": (n, filters, *out),
        "x": (n, channels, *size),
        "offset": (n, 2 * taps, *out),
        "mask": (n, taps, *out),
        "weight": (filters, channels // groups, *kernel),
    }


def case(name: str, of: dict[str, Shape], *, deviation: float = 1.0, special: tuple[str, ...] = ()) -> Case:
    """Return a case with offsets of about `deviation` pixels, and special values in some inputs."""
    drawn: dict[str, Tensor | None] = {
        part: Random(
            shape=shape, mean=0.5 * (part == "mask"), deviation=deviation if part == "offset" else 1.0,
            specials=SPECIAL if part in special else {},
        )
        for part, shape in of.items()
    }  # fmt: skip
    return Case(name=name, inputs=drawn)


def vectors(name: str, of: dict[str, Shape]) -> Case:
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in of.items()},
        expected=Vectors(path=f"vectors/{name}.npz", source=COMPUTED, licence="Apache-2.0"),
    )


PADDED: dict[str, AttributeValue] = {"padding": (1, 1)}
GROUPED: dict[str, AttributeValue] = {
    "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2, "deform_groups": 3,
}  # fmt: skip
IN_GROUPS = shapes(2, 6, (7, 6), 4, (3, 2), (4, 8), groups=2, deform_groups=3)


def padded(dtype: DType) -> Model:
    """Return the model of mmcv's test, with other sizes."""
    return Model(
        name=f"padded_{dtype}",
        types={"T": dtype},
        attributes=PADDED,
        dynamic={"x": ("N", None, "H", "W")} | dict.fromkeys(("grad_y", "offset", "mask"), ("N", None, "P", "Q")),
        cases=(
            case(f"traced_{dtype}", shapes(2, 1, (5, 4), 1, (2, 2), (6, 5))),
            vectors(f"test_{dtype}", shapes(1, 1, (3, 3), 1, (2, 2), (4, 4))),
            case(f"special_{dtype}", shapes(1, 1, (4, 4), 1, (2, 2), (5, 5)), special=("x", "offset")),
            case(f"special_mask_{dtype}", shapes(1, 1, (4, 4), 1, (2, 2), (5, 5)), special=("mask", "grad_y")),
            case(f"far_{dtype}", shapes(1, 1, (6, 3), 1, (2, 2), (7, 4)), deviation=9.0),
            case(f"empty_{dtype}", shapes(0, 1, (4, 4), 1, (2, 2), (5, 5))),
        ),
    )


def grouped(dtype: DType) -> Model:
    return Model(
        name=f"grouped_{dtype}",
        types={"T": dtype},
        attributes=GROUPED,
        cases=(case(f"drawn_{dtype}", IN_GROUPS), vectors(f"grouped_{dtype}", IN_GROUPS)),
    )


DTYPES: tuple[DType, ...] = ("float32", "float64", "float16")
MODELS = (*map(padded, DTYPES), *map(grouped, DTYPES))
