"""The gradient: one for each argument of the schema ahead of its star, in its order.

torch leaves arguments at the end that have their default out of ctx.needs_input_grad.
"""

from typing import Any


def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.factor, weight, x, other = inputs
    ctx.sign = -1.0 if keyword_only_inputs["signed"] else 1.0
    ctx.has_other = other is not None
    ctx.save_for_backward(weight, x)


def backward(ctx: Any, grad: Any) -> Any:
    weight, x = ctx.saved_tensors
    added = grad * ctx.sign if ctx.has_other else None
    return None, grad * x * ctx.factor, grad * weight * ctx.factor, added
