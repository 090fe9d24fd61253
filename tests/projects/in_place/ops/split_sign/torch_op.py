"""The gradient: each element of x goes to one of two outputs, of which one is written as ``out=``."""

from typing import Any


def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def backward(ctx: Any, negative: Any, called: Any, positive: Any) -> Any:
    (x,) = ctx.saved_tensors
    return negative * (x < 0) + positive * (x > 0), None, None
