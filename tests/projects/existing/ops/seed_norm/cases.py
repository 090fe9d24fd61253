"""The case of the original, and a model with dynamic sizes."""

import math

from opmatrix.spec import Case, MemoryLayout, Model, Random, Tensor, Values


def inputs(*shape: int, groups: float, layout: MemoryLayout = "contiguous", nan: bool = False) -> dict[str, Tensor]:
    channels = Random(shape=shape[1:2])
    x = Random(shape=shape, layout=layout, specials={0: math.nan} if nan else {})
    return {"x": x, "num_groups": Values(values=(groups,)), "scale": channels, "bias": channels}


MODELS = (
    Model(name="seed", cases=(Case(name="seed", inputs=inputs(3, 2, 1, 2, groups=2.0)),)),
    Model(
        name="dynamic",
        attributes={"epsilon": 0.1},
        dynamic={"x": ("N", None, "H", "W")},
        cases=(
            Case(name="plain", inputs=inputs(2, 6, 3, 5, groups=3.0)),
            Case(name="transposed", inputs=inputs(3, 6, 4, 2, groups=2.0, layout="transposed")),
            Case(name="nan", inputs=inputs(1, 6, 3, 3, groups=6.0, nan=True)),
            Case(name="empty_batch", inputs=inputs(0, 6, 2, 2, groups=1.0)),
        ),
    ),
)
