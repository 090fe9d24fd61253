"""The gradient: that of a sum. It keeps both tensors, as formulas do that need their values."""

from typing import Any


def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, y, ctx.alpha = inputs
    ctx.save_for_backward(x, y)


def backward(ctx: Any, grad: Any) -> Any:
    x, y = ctx.saved_tensors
    return grad.view_as(x), (grad * ctx.alpha).view_as(y), None
