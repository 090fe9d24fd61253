"""Small numbers, and one that no double holds."""

from typing import Any

from opmatrix.spec import Case, Model, Random


def called(op: Any, x: Any) -> Any:
    return op(x)


MODELS = (
    Model(
        name="small",
        around=called,
        attributes={"other": 3, "alpha": -2},
        dynamic={"x": ("N",)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(4,), deviation=9.0)}),
            Case(name="empty", inputs={"x": Random(shape=(0,))}),
        ),
    ),
    Model(
        name="large",
        attributes={"other": 2**53 + 1},
        cases=(Case(name="exact", inputs={"x": Random(shape=(2, 2), deviation=9.0)}),),
    ),
)
