"""The models that group_norm is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, DType, MemoryLayout, Model, Random, Tensor, Values

NAN, INF = math.nan, math.inf


def inputs(
    *shape: int,
    groups: float,
    mean: float = 0.0,
    specials: dict[int, float] | None = None,
    layout: MemoryLayout = "contiguous",
) -> dict[str, Tensor]:
    """Return x of `shape` with a random scale and bias for its channels."""
    channels = (shape[1],)
    return {
        "x": Random(shape=shape, mean=mean, specials=specials or {}, layout=layout),
        "num_groups": Values(values=(groups,)),
        "scale": Random(shape=channels, mean=1.0, deviation=0.5),
        "bias": Random(shape=channels),
    }


SEED = Model(
    name="seed",  # the tutorial's CustomModel, its domain version and its names
    types={"T": "float32"},
    attributes={"epsilon": 0.0},
    domain_version=2,
    names={"x": "X", "y": "Y"},
    cases=(
        Case(
            name="seed",
            inputs={
                "x": Random(shape=(3, 2, 1, 2)),
                "num_groups": Values(values=(2.0,)),
                "scale": Values(values=(2.0, 1.0)),
                "bias": Values(values=(1.0, 0.0)),
            },
        ),
    ),
)


def static(dtype: DType) -> Model:
    return Model(
        name=f"static_{dtype}",
        types={"T": dtype},
        cases=(
            Case(name=f"plain_{dtype}", inputs=inputs(2, 6, 5, 7, groups=3)),
            Case(name=f"one_group_{dtype}", inputs=inputs(2, 6, 5, 7, groups=1)),
            Case(name=f"instance_{dtype}", inputs=inputs(2, 6, 5, 7, groups=6)),
            Case(name=f"nan_{dtype}", inputs=inputs(2, 6, 5, 7, groups=3, specials={3: NAN})),
            Case(name=f"infinite_{dtype}", inputs=inputs(2, 6, 5, 7, groups=3, specials={80: INF, 300: -INF})),
            Case(name=f"transposed_{dtype}", inputs=inputs(2, 6, 5, 7, groups=2, layout="transposed")),
            Case(name=f"sliced_{dtype}", inputs=inputs(2, 6, 5, 7, groups=2, layout="sliced")),
            Case(name=f"flipped_{dtype}", inputs=inputs(2, 6, 5, 7, groups=2, layout="flipped")),
            Case(
                name=f"expanded_{dtype}",
                inputs=inputs(2, 6, 5, 7, groups=2) | {"scale": Values(values=(2.0,) * 6, layout="expanded")},
            ),
        ),
    )


# Large enough for the kernel to use several threads; once is enough, for the types share that code.
THREADS = Case(name="threads", inputs=inputs(2, 8, 63, 67, groups=4))


def dynamic(dtype: DType, *more: Case) -> Model:
    return Model(
        name=f"dynamic_{dtype}",
        types={"T": dtype},
        attributes={"epsilon": 1e-3},
        domain_version=2,
        dynamic={"x": ("N", "C", "H", "W"), "scale": ("C",), "bias": ("C",)},
        cases=(
            Case(name=f"exported_{dtype}", inputs=inputs(2, 8, 4, 6, groups=4)),
            Case(name=f"empty_batch_{dtype}", inputs=inputs(0, 4, 3, 3, groups=2)),
            Case(name=f"one_element_{dtype}", inputs=inputs(1, 1, 1, 1, groups=1)),
            Case(name=f"odd_sizes_{dtype}", inputs=inputs(3, 9, 13, 1, groups=3)),
            Case(name=f"large_mean_{dtype}", inputs=inputs(2, 8, 14, 14, groups=4, mean=1000.0)),
            *more,
        ),
    )


def flat(dtype: DType) -> Model:
    return Model(
        name=f"flat_{dtype}",  # no axes beyond the channels
        types={"T": dtype},
        attributes={"epsilon": 0.01},
        dynamic={"x": ("N", None)},
        cases=(
            Case(name=f"flat_{dtype}", inputs=inputs(4, 12, groups=3)),
            Case(name=f"flat_prime_{dtype}", inputs=inputs(7, 12, groups=4)),
        ),
    )


# An x, scale and bias of which x * scale / sqrt(x * x + 0.01) + bias is next to 0. In float, nothing of it is left.
CANCELLED = {"float16": (0.414794921875, 116.6875, -113.4375), "bfloat16": (0.1875, 119.0, -105.0)}


def cancelled(dtype: DType) -> Case:
    x, scale, bias = CANCELLED[dtype]
    return Case(
        name=f"cancelled_{dtype}",
        inputs={
            "x": Values(values=(((x, -x) * 16,) * 2,)),
            "num_groups": Values(values=(1.0,)),
            "scale": Values(values=(scale, 1.0)),
            "bias": Values(values=(bias, 0.5)),
        },
    )


def small_factor(pixels: int) -> Case:
    """Return a case whose factor of x, 2^-150, is no float."""
    return Case(
        name=f"small_factor_{pixels}",
        inputs={
            "x": Values(values=(((2.0**50, -(2.0**50)) * (pixels // 2),) * 2,)),
            "num_groups": Values(values=(1.0,)),
            "scale": Values(values=(2.0**-100, 1.0)),
            "bias": Values(values=(0.0, 0.5)),
        },
    )


def half(dtype: DType, *more: Case) -> Model:
    return Model(
        name=dtype,
        types={"T": dtype},
        attributes={"epsilon": 0.01},
        dynamic={"x": ("N", "C", "H"), "scale": ("C",), "bias": ("C",)},
        min_opset={"decomposed": 13} if dtype == "bfloat16" else {},
        cases=(
            Case(name=f"plain_{dtype}", inputs=inputs(2, 6, 11, groups=3)),
            Case(name=f"special_{dtype}", inputs=inputs(2, 6, 5, groups=3, specials={3: NAN, 50: INF})),
            Case(name=f"mean_{dtype}", inputs=inputs(1, 8, 37, groups=2, mean=10.0)),
            Case(name=f"blocks_{dtype}", inputs=inputs(1, 2, 1500, groups=1, mean=10.0)),  # of 1024 for the moments
            # The kernel has a separate loop for channels of 16 elements, 2 to 8 at a time; of 5, one is left over.
            Case(name=f"sixteen_{dtype}", inputs=inputs(2, 10, 16, groups=2)),
            cancelled(dtype),
            *more,
        ),
    )


MODELS = (
    SEED,
    static("float32"),
    static("float64"),
    dynamic("float32", THREADS),
    dynamic("float64"),
    flat("float32"),
    flat("float64"),
    half("float16"),
    half("bfloat16", small_factor(32), small_factor(16)),
)
