"""The models that radius_graph is exported in, and the cases that run through each."""

import math

from opmatrix.spec import AttributeValue, Case, DType, MemoryLayout, Model, Random, Tensor, Values

Inputs = dict[str, Tensor | tuple[Tensor, ...] | None]

CORNERS = ((-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0))  # a square whose sides are 2 long
EXAMPLES = (-3, -3, 0, 0, 0, 0, 0, 5, 5, 7, 2**62, 2**62)


def inputs(
    points: int, dimensions: int, *, layout: MemoryLayout = "contiguous", specials: dict[int, float] | None = None
) -> Inputs:
    return {"x": Random(shape=(points, dimensions), layout=layout, specials=specials or {}), "batch": None}


def alone(dtype: DType) -> Model:
    """Points of one example."""
    return Model(
        name=f"alone_{dtype}",
        types={"T": dtype},
        attributes={"r": 1.5},
        dynamic={"x": ("N", "F")},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(7, 3)),
            Case(name=f"no_points_{dtype}", inputs=inputs(0, 3)),
            Case(name=f"no_dimensions_{dtype}", inputs=inputs(4, 0)),
            Case(name=f"one_point_{dtype}", inputs=inputs(1, 2)),
            Case(name=f"threads_{dtype}", inputs=inputs(311, 3)),  # and more than 32 neighbours
            Case(name=f"transposed_{dtype}", inputs=inputs(13, 3, layout="transposed")),
            Case(name=f"sliced_{dtype}", inputs=inputs(13, 3, layout="sliced")),
            # With fewer dimensions all points are neighbours.
            Case(name=f"many_dimensions_{dtype}", inputs={"x": Random(shape=(9, 200), deviation=0.075), "batch": None}),
            Case(
                name=f"special_{dtype}",
                inputs=inputs(13, 3, specials={0: math.nan, 7: math.inf, 11: -math.inf, 30: math.inf}),
            ),
        ),
    )


def examples(dtype: DType) -> Model:
    """Points of several examples, each its own neighbour, and edges the other way round."""
    return Model(
        name=f"examples_{dtype}",
        types={"T": dtype},
        attributes={"r": 2.0, "loop": True, "max_num_neighbors": 3, "flow": "target_to_source"},
        dynamic={"x": ("N", None), "batch": ("N",)},
        cases=(
            Case(name=f"examples_{dtype}", inputs={"x": Random(shape=(12, 2)), "batch": Values(values=EXAMPLES)}),
            Case(
                name=f"examples_twice_{dtype}",
                inputs={
                    "x": Random(shape=(24, 2), layout="sliced"),
                    "batch": Values(values=tuple(sorted(EXAMPLES * 2)), layout="sliced"),
                },
            ),
            Case(name=f"no_examples_{dtype}", inputs={"x": Random(shape=(0, 2)), "batch": Values(values=())}),
        ),
    )


def published(
    name: str, points: tuple[tuple[float, ...], ...], batch: tuple[int, ...] | None = None, **more: AttributeValue
) -> Model:
    """A model of torch_cluster's own tests (test/test_radius.py), which say what its edges are."""
    given: Inputs = {"x": Values(values=points), "batch": Values(values=batch) if batch else None}
    return Model(name=name, types={"T": "float32"}, attributes=more, cases=(Case(name=name, inputs=given),))


# 4097^2 is no float32: the distance, which is no less than the radius, would be.
EXACT = Model(
    name="exact",
    types={"T": "float32"},
    attributes={"r": 4097.0, "loop": True},
    cases=(Case(name="exact", inputs={"x": Values(values=((0.0,), (4097.0,))), "batch": None}),),
)

MODELS = (
    *(make(dtype) for make in (alone, examples) for dtype in ("float32", "float64")),
    published("square", CORNERS, r=2.5),
    published("square_reversed", CORNERS, r=2.5, flow="target_to_source"),
    published("sides_are_no_less", CORNERS, r=2.0),
    published("one_neighbor", CORNERS, r=100.0, max_num_neighbors=1),
    published("same_points", ((-1.0, -1.0),) * 4, r=100.0, max_num_neighbors=1),
    published("two_squares", CORNERS * 2, (0, 0, 0, 0, 1, 1, 1, 1), r=100.0, max_num_neighbors=1),
    EXACT,
)
