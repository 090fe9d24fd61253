"""What `doit bench` times of group_norm: small and large groups, compared with torch's group_norm."""

import math
from typing import Any

from opmatrix.bench.spec import Bench, Function, Row
from opmatrix.spec import DType, Random, Values

GROUPS = 32
SHAPES = ((64, 1024), (8, 512, 4, 4), (8, 256, 32, 32), (8, 256, 64, 64))
DTYPES: tuple[DType, ...] = ("float32", "float64", "float16", "bfloat16")


def row(shape: tuple[int, ...], dtype: DType) -> Row:
    channels = (shape[1],)
    return Row(
        name=f"{'x'.join(map(str, shape))}_{dtype}",
        types={"T": dtype},
        inputs={
            "x": Random(shape=shape),
            "num_groups": Values(values=(float(GROUPS),)),
            "scale": Random(shape=channels, mean=1.0, deviation=0.5),
            "bias": Random(shape=channels),
        },
    )


def arguments(x: Any, num_groups: Any, scale: Any, bias: Any, *, epsilon: float) -> tuple[Any, ...]:
    """Return the arguments of torch.nn.functional.group_norm."""
    return x, int(num_groups), scale, bias, epsilon


BENCH = Bench(
    rows=(*(row(shape, "float32") for shape in SHAPES), *(row(SHAPES[2], dtype) for dtype in DTYPES[1:])),
    peers=(Function(name="torch", function="torch.nn.functional:group_norm", inputs=arguments),),
    flops=lambda x, num_groups, scale, bias, epsilon: 8 * math.prod(x),
)
