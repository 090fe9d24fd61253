"""Numbers that are whole and that are not, with and without an offset, and an empty tensor."""

from typing import Any

from opmatrix.spec import Case, Model, Random


def called(op: Any, x: Any) -> Any:
    return op(x)


MODELS = (
    Model(
        name="whole",
        around=called,
        types={"T": "float32"},
        attributes={"factor": 3.0, "offset": -2.0},
        dynamic={"x": ("N", None)},
        cases=(
            Case(name="plain", inputs={"x": Random(shape=(2, 3))}),
            Case(name="empty", inputs={"x": Random(shape=(0, 3))}),
        ),
    ),
    Model(
        name="fraction",
        types={"T": "float64"},
        attributes={"factor": -0.5},
        cases=(Case(name="alone", inputs={"x": Random(shape=(5,))}),),
    ),
    Model(
        name="both",
        types={"T": "float64"},
        attributes={"factor": 1.5, "offset": 0.25},
        cases=(Case(name="last", inputs={"x": Random(shape=(2, 2))}),),
    ),
)
