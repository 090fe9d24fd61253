"""The gradient: that of a sum."""

from typing import Any


def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.alpha = inputs[2]


def backward(ctx: Any, grad: Any) -> Any:
    return grad, grad * ctx.alpha, None
