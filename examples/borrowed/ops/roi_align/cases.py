"""The models that roi_align is exported in, and the cases that run through each."""

import math

from opmatrix.spec import AttributeValue, Case, DType, MemoryLayout, Model, Random, Tensor, Values

Boxes = tuple[tuple[float, ...], ...]

# Of a map of 16 by 24 pixels at a quarter of the image's size: inside; across a corner; a point; outside; all of it;
# less than a pixel; one that ends before it begins; one at the far edge.
BOXES: Boxes = (
    (0, 8.0, 4.0, 40.0, 36.0),
    (1, -6.0, -9.0, 13.0, 21.5),
    (1, 17.0, 23.0, 17.0, 23.0),
    (0, 200.0, 300.0, 220.0, 330.0),
    (1, 0.0, 0.0, 96.0, 64.0),
    (0, 50.3, 20.1, 51.9, 22.2),
    (0, 40.0, 30.0, 20.0, 10.0),
    (1, 90.0, 60.0, 99.0, 68.0),
)
# Has samples beyond the last column, where the map is infinite at the index 1439: infinity times 0 is NaN.
AT_THE_RIGHT = (1, 90.0, 40.0, 99.0, 48.0)
FPN: dict[str, AttributeValue] = {
    "spatial_scale": 0.25, "pooled_height": 7, "pooled_width": 5, "sampling_ratio": 2, "aligned": False,
}  # fmt: skip
PER_PIXEL: dict[str, AttributeValue] = {
    "spatial_scale": 0.3, "pooled_height": 3, "pooled_width": 4, "sampling_ratio": -1, "aligned": True,
}  # fmt: skip


def inputs(
    *maps: int,
    boxes: Boxes = BOXES,
    layout: MemoryLayout = "contiguous",
    specials: dict[int, float] | None = None,
) -> dict[str, Tensor]:
    return {
        "input": Random(shape=maps, layout=layout, specials=specials or {}),
        "rois": Values(values=boxes, layout=layout if layout in ("transposed", "sliced") else "contiguous"),
    }


def static(dtype: DType) -> Model:
    return Model(
        name=f"static_{dtype}",
        types={"T": dtype},
        attributes=FPN,
        cases=(
            Case(name=f"plain_{dtype}", inputs=inputs(2, 3, 16, 24)),
            Case(name=f"transposed_{dtype}", inputs=inputs(2, 3, 16, 24, layout="transposed")),
            Case(name=f"sliced_{dtype}", inputs=inputs(2, 3, 16, 24, layout="sliced")),
            Case(
                name=f"special_{dtype}",
                inputs=inputs(
                    2, 3, 16, 24, boxes=(*BOXES[:-1], AT_THE_RIGHT),
                    specials={5: math.nan, 400: math.inf, 1439: math.inf, 1500: -math.inf},
                ),
            ),
            Case(
                name=f"no_numbers_{dtype}",
                inputs=inputs(
                    2, 3, 16, 24,
                    boxes=(
                        (0, math.nan, 4.0, 40.0, 36.0),
                        (1, 8.0, 4.0, math.inf, 36.0),
                        (1, 8.0, -math.inf, 40.0, math.inf),
                        *BOXES[:5],
                    ),
                ),
            ),
        ),
    )  # fmt: skip


def dynamic(dtype: DType) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        attributes=PER_PIXEL,
        dynamic={"input": ("N", "C", "H", "W"), "rois": ("K", None)},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(2, 3, 16, 24)),
            Case(name=f"no_boxes_{dtype}", inputs=inputs(2, 3, 16, 24) | {"rois": Random(shape=(0, 5))}),
            Case(name=f"no_channels_{dtype}", inputs=inputs(2, 0, 16, 24)),
            Case(name=f"one_pixel_{dtype}", inputs=inputs(2, 1, 1, 1)),
            Case(name=f"one_row_{dtype}", inputs=inputs(3, 2, 1, 31, boxes=BOXES * 3)),
            Case(name=f"on_edge_{dtype}", inputs=inputs(2, 3, 16, 24, boxes=ON_EDGE)),
            Case(
                name=f"half_an_index_{dtype}", inputs=inputs(2, 2, 9, 9, boxes=((1.75, 3, 3, 9, 9), (-0.5, 0, 0, 9, 9)))
            ),
        ),
    )


# Of a map of 24 columns at 0.3 of the image's size, in float64: the last sample is on its edge, or beyond it by one
# rounding. Arithmetic that rounds less often, as an FMA does, decides otherwise.
ON_EDGE: Boxes = ((0, 3.97, 4.0, 83.31978391985535, 30.0), (1, 8.06, 4.0, 83.23276264325962, 30.0))

# Enough boxes for several threads, as a detector has them, and both sides of what is declared for one attribute.
THREADS = Model(
    name="threads",
    types={"T": "float32"},
    attributes=FPN | {"aligned": True, "sampling_ratio": 0},
    dynamic={"input": (None, None, "H", "W"), "rois": ("K", None)},
    cases=(
        Case(name="threads_example", inputs=inputs(2, 9, 16, 24)),
        Case(name="threads", inputs=inputs(2, 9, 31, 17, boxes=BOXES * 40)),
        Case(name="large_maps", inputs=inputs(2, 9, 99, 170)),  # more than the kernel keeps at a time
    ),
)
MODELS = (*(make(dtype) for make in (static, dynamic) for dtype in ("float32", "float64")), THREADS)
