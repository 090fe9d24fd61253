"""The models that nms is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, Model, Random, Tensor, Values

Boxes = tuple[tuple[float, ...], ...]
Inputs = dict[str, Tensor | tuple[Tensor, ...] | None]

# Rows of three boxes that overlap by more than half, less than half, and not at all; their numbers are exact.
ROWS: Boxes = tuple((16.0 * row + dx, 1.0, 16.0 * row + dx + 8.0, 9.0) for row in range(4) for dx in (0.0, 1.0, 5.0))
SCORES = (0.5, 0.75, 0.625, 0.25, 0.25, 0.25, 0.875, 0.5, 0.375, 0.125, 0.9375, 1.0)
OTHERS = (1.0, 0.5, 0.5, 1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 4.0, 0.5, 0.25)
LOWERED = (*(1.0,) * 9, 0.25, 0.25, 1.0)  # two boxes of one class, the first kept where no score is too low
CLASSES = (0, 1, 0, 2, 2, 2, -1, -1, 7, 2**62, 2**62, 0)
VALID = (True, False, True, True, True, True, True, True, False, True, True, False)

# Centers and sizes of boxes that overlap much: any other corner of them makes other boxes stay, of these scores.
CENTERED: Boxes = (
    (3.75, 2.0, 7.5, 5.5), (5.5, 3.75, 7.0, 3.0), (4.25, 2.5, 5.5, 3.0), (1.0, 2.75, 3.5, 7.5), (2.5, 1.75, 5.0, 3.0),
    (2.5, 4.75, 8.5, 3.0), (0.5, 5.5, 7.0, 8.5), (0.0, 1.75, 7.0, 6.0), (3.25, 5.5, 3.5, 5.0), (3.5, 2.0, 9.0, 4.0),
    (2.0, 4.75, 5.0, 3.5), (3.25, 5.25, 3.5, 9.5),
)  # fmt: skip
CENTERED_SCORES = (
    1.09375, 1.28125, 1.875, 1.3125, 1.875, 1.59375, 0.5, 1.21875, 1.375, 1.875, 1.28125, 0.84375
)  # fmt: skip


def repeated(times: int) -> Inputs:
    """Return `times` copies of the rows, far from each other."""
    boxes = tuple((x + 100.0 * n, y, w + 100.0 * n, h) for n in range(times) for x, y, w, h in ROWS)
    return {"boxes": Values(values=boxes), "scores": Values(values=SCORES * times), "factors": ()}


def plain(dtype: DType) -> Model:
    """Two inputs, with any number of boxes."""
    return Model(
        name=f"plain_{dtype}",
        types={"T": dtype},
        dynamic={"boxes": ("N", None), "scores": ("N",)},
        cases=(
            Case(name=f"rows_{dtype}", inputs=repeated(1)),
            Case(name=f"many_{dtype}", inputs=repeated(17)),
            Case(
                name=f"empty_{dtype}",
                inputs={"boxes": Random(shape=(0, 4)), "scores": Random(shape=(0,)), "factors": ()},
            ),
            Case(
                name=f"none_left_{dtype}",
                inputs={"boxes": Random(shape=(1, 4)), "scores": Values(values=(0.0,)), "factors": ()},
            ),
            Case(
                name=f"random_{dtype}",
                inputs={"boxes": Random(shape=(97, 4)), "scores": Random(shape=(97,)), "factors": ()},
            ),
            Case(
                name=f"special_{dtype}",
                inputs={
                    "boxes": Random(shape=(9, 4), specials={2: math.nan, 9: math.inf, 14: -math.inf, 15: math.inf}),
                    "scores": Values(values=(0.5, 0.5, math.nan, 2.0, math.inf, -math.inf, 1e-300, 0.5, 0.5)),
                    "factors": (),
                },
            ),
            Case(
                name=f"points_{dtype}",  # boxes without an area, one of them twice
                inputs={
                    "boxes": Values(values=((1.0, 1.0, 1.0, 1.0),) * 2 + ((0.0, 0.0, 2.0, 2.0),)),
                    "scores": Values(values=(1.0, 1.0, 0.5)),
                    "factors": (),
                },
            ),
        ),
    )


def full(dtype: DType, *more: Case) -> Model:
    """Every input, and every attribute unlike its default: boxes as columns of y, h, x, w. To swap x and y would change
    no overlap, and to swap two corners none either."""
    columns = tuple(tuple(box[k] for box in ROWS) for k in (1, 3, 0, 2))
    flipped: Inputs = {
        "boxes": Values(values=columns, layout="transposed"),
        "scores": Values(values=SCORES, layout="sliced"),
        "classes": Values(values=CLASSES, layout="sliced"),
        "valid": Values(values=VALID, layout="sliced"),
    }
    factors = (Values(values=OTHERS, layout="sliced"), Values(values=LOWERED))
    ones = Values(values=(1.0,) * 12)
    centered: Inputs = {
        "boxes": Values(values=tuple(tuple(box[k] for box in CENTERED) for k in (1, 3, 0, 2))),
        "scores": Values(values=CENTERED_SCORES),
        "classes": Values(values=(0,) * 12),
        "valid": Values(values=(True,) * 12),
        "factors": (ones, ones),
    }
    return Model(
        name=f"full_{dtype}",
        types={"T": dtype},
        attributes={
            "iou_threshold": 0.3, "score_threshold": 0.2, "max_boxes": 5, "format": "center",
            "coordinates": (2, 0, 3, 1), "axis": -2,
        },
        cases=(
            Case(name=f"full_{dtype}", inputs={**flipped, "factors": factors}),
            Case(name=f"centered_{dtype}", inputs=centered),
            *more,
        ),
    )  # fmt: skip


CLASSES_ALONE = Model(
    name="classes",  # the second optional input is absent
    types={"T": "float32"},
    dynamic={"boxes": ("N", None), "scores": ("N",), "classes": ("N",)},
    cases=(
        Case(name="classes", inputs={**repeated(1), "classes": Values(values=CLASSES)}),
        Case(name="classes_twice", inputs={**repeated(2), "classes": Values(values=CLASSES * 2)}),
    ),
)
VALID_ALONE = Model(
    name="valid",  # an absent input stands between two that are given
    types={"T": "float32"},
    attributes={"max_boxes": 3},
    cases=(Case(name="valid", inputs={**repeated(1), "valid": Values(values=VALID)}),),
)
FACTORS_ALONE = Model(
    name="factors",  # two absent inputs stand before a variadic one
    types={"T": "float64"},
    attributes={"iou_threshold": 0.0, "max_boxes": 2, "axis": 1},
    cases=(Case(name="factors", inputs={**repeated(1), "factors": (Values(values=OTHERS), Values(values=OTHERS))}),),
)

INDICES_ALONE = Model(
    name="indices",  # as NonMaxSuppression of ONNX, which returns nothing else
    types={"T": "float32"},
    dynamic={"boxes": ("N", None), "scores": ("N",)},
    absent=("selected", "kept"),
    cases=(Case(name="indices", inputs=repeated(1)), Case(name="indices_of_many", inputs=repeated(17))),
)


def half(dtype: DType) -> Model:
    """The boxes of one more case are apart, so that more than `max_boxes` remain, and no product of scores is exact."""
    third = Values(values=(1.3359375,) * 12)
    apart: Inputs = {
        "boxes": Values(values=((2.0,) * 12, (4.0,) * 12, tuple(20.0 * n for n in range(12)), (4.0,) * 12)),
        "scores": Values(values=CENTERED_SCORES),
        "classes": Values(values=(0,) * 12),
        "valid": Values(values=(True,) * 12),
        "factors": (third, third),
    }
    return full(dtype, Case(name=f"apart_{dtype}", inputs=apart))


MODELS = (
    *(make(dtype) for make in (plain, full) for dtype in ("float32", "float64")),
    half("float16"),
    half("bfloat16"),
    CLASSES_ALONE,
    VALID_ALONE,
    FACTORS_ALONE,
    INDICES_ALONE,
)
