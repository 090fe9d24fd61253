"""What `doit bench` times of dual_residual: it moves four numbers for each element, so memory is its limit."""

import math
from typing import Any

from opmatrix.bench.spec import Bench, Function, Row
from opmatrix.spec import DType, Random

COUNTS = (1 << 10, 1 << 16, 1 << 22)
DTYPES: tuple[DType, ...] = ("float32", "float64", "float16", "bfloat16")


def expression(x: Any, y: Any, *, alpha: float) -> tuple[Any, Any]:
    """Compute the same in torch."""
    return alpha * x - y, alpha * y - x


def row(count: int, dtype: DType) -> Row:
    tensor = Random(shape=(count,))
    return Row(
        name=f"{count}_{dtype}", types={"T": dtype}, inputs={"x": tensor, "y": tensor}, attributes={"alpha": -1.75}
    )


BENCH = Bench(
    rows=(*(row(count, "float32") for count in COUNTS), *(row(COUNTS[-1], dtype) for dtype in DTYPES[1:])),
    peers=(Function(name="torch", function=expression),),
    flops=lambda x, y, alpha: 4 * math.prod(x),
)
