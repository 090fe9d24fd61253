"""Operands of several layouts, an empty tensor, and a model that reads x again after it was written."""

from typing import Any

from opmatrix.spec import Case, Model, Random


def doubled(op: Any, x: Any, y: Any) -> Any:
    return op(x + x, y) * y


MODELS = (
    Model(
        name="dynamic",
        types={"T": "float32"},
        attributes={"alpha": -2.5},
        dynamic={"x": ("N", None), "y": ("N", None)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(2, 3)), "y": Random(shape=(2, 3))}),
            Case(name="empty", inputs={"x": Random(shape=(0, 3)), "y": Random(shape=(0, 3))}),
            Case(name="strided", inputs={"x": Random(shape=(4, 3), layout="transposed"), "y": Random(shape=(4, 3))}),
        ),
    ),
    Model(
        name="read_later",
        types={"T": "float64"},
        attributes={"alpha": 0.5},
        around=doubled,
        cases=(Case(name="later", inputs={"x": Random(shape=(5,)), "y": Random(shape=(5,))}),),
    ),
)
