"""The operator as standard nodes."""

from typing import Any


def decomposed(g: Any, x: Any) -> Any:
    half, one = g.constant(0.5, "float32"), g.constant(1.0, "float32")
    for _ in range(200):
        x = g.op("Add", g.op("Mul", x, half), one)
    return x
