"""The models that causal_conv1d is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random, Tensor


def inputs(
    batch: int,
    channels: int,
    steps: int,
    width: int,
    *,
    bias: bool = True,
    states: bool = True,
    layout: MemoryLayout = "contiguous",
    specials: dict[int, float] | None = None,
) -> dict[str, Tensor | tuple[Tensor, ...] | None]:
    return {
        "x": Random(shape=(batch, channels, steps), layout=layout, specials=specials or {}),
        "weight": Random(shape=(channels, width), layout=layout),
        "bias": Random(shape=(channels,)) if bias else None,
        "initial_states": Random(shape=(batch, channels, width - 1), layout=layout) if states else None,
    }


def full(dtype: DType) -> Model:
    """Every input, as one call after another has them."""
    return Model(
        name=f"full_{dtype}",
        types={"T": dtype},
        attributes={"activation": "silu"},
        dynamic={"x": ("B", None, "L"), "initial_states": ("B", None, None)},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(2, 6, 11, 4)),
            Case(name=f"one_step_{dtype}", inputs=inputs(3, 6, 1, 4)),  # as a decoder goes
            Case(name=f"long_{dtype}", inputs=inputs(1, 6, 531, 4)),  # more than the kernel keeps at a time
            Case(name=f"fewer_steps_than_weights_{dtype}", inputs=inputs(2, 6, 2, 4)),
            Case(name=f"no_steps_{dtype}", inputs=inputs(2, 6, 0, 4)),
            Case(name=f"no_sequences_{dtype}", inputs=inputs(0, 6, 5, 4)),
            Case(
                name=f"special_{dtype}", inputs=inputs(2, 6, 11, 4, specials={2: math.nan, 40: math.inf, 80: -math.inf})
            ),
            Case(name=f"transposed_{dtype}", inputs=inputs(2, 6, 7, 4, layout="transposed")),  # channels last
            Case(name=f"sliced_{dtype}", inputs=inputs(2, 6, 7, 4, layout="sliced")),
        ),
    )


def bare(dtype: DType) -> Model:
    """No optional input."""
    return Model(
        name=f"bare_{dtype}",
        types={"T": dtype},
        dynamic={"x": ("B", "D", "L"), "weight": ("D", None)},
        cases=(
            Case(name=f"bare_{dtype}", inputs=inputs(2, 5, 9, 3, bias=False, states=False)),
            Case(name=f"one_channel_{dtype}", inputs=inputs(2, 1, 9, 3, bias=False, states=False)),
            Case(name=f"bare_no_steps_{dtype}", inputs=inputs(2, 5, 0, 3, bias=False, states=False)),
        ),
    )


BIAS_ALONE = Model(
    name="bias",  # a prompt is read like this
    types={"T": "float32"},
    attributes={"activation": "swish"},
    dynamic={"x": ("B", None, "L")},
    cases=(
        Case(name="bias", inputs=inputs(2, 4, 5, 4, states=False)),
        Case(name="threads", inputs=inputs(3, 4, 9001, 4, states=False)),
    ),
)
STATES_ALONE = Model(
    name="states",  # an absent input stands before one that is given
    types={"T": "float32"},
    dynamic={"x": ("B", None, "L"), "initial_states": ("B", None, None)},
    cases=(
        Case(name="states", inputs=inputs(2, 4, 5, 2, bias=False)),
        Case(name="states_one_step", inputs=inputs(2, 4, 1, 2, bias=False)),
    ),
)
ONE_WEIGHT = Model(
    name="one_weight",  # no state at all
    types={"T": "float32"},
    cases=(Case(name="one_weight", inputs=inputs(2, 4, 5, 1)),),
)
WIDE = Model(
    name="wide",  # more weights than the original takes, and than there are steps
    types={"T": "float64"},
    cases=(Case(name="wide", inputs=inputs(1, 3, 5, 13)),),
)
FULL_AND_BARE = tuple(make(dtype) for make in (full, bare) for dtype in ("float32", "float64"))
MODELS = (*FULL_AND_BARE, BIAS_ALONE, STATES_ALONE, ONE_WEIGHT, WIDE)
