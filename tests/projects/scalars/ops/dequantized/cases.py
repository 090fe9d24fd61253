"""Both integer types, with and without a zero point, and an empty tensor."""

from typing import Any

from opmatrix.spec import Case, Model, Random


def called(op: Any, x: Any) -> Any:
    return op(x)


MODELS = (
    Model(
        name="signed",
        around=called,
        types={"Q": "int8"},
        attributes={"scale": 0.5, "zero_point": -3},
        dynamic={"x": ("N", None)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(2, 3), deviation=20.0)}),
            Case(name="empty", inputs={"x": Random(shape=(0, 3))}),
        ),
    ),
    Model(
        name="unsigned",
        types={"Q": "uint8"},
        attributes={"scale": 0.25, "zero_point": 7},
        cases=(Case(name="alone", inputs={"x": Random(shape=(5,), deviation=20.0)}),),
    ),
)
