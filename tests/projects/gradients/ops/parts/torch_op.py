"""gradients::parts in Python, and the gradient of the square alone."""

from typing import Any

import torch


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.mark_non_differentiable(output[1])


def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return 2 * ctx.saved_tensors[0] * grad


def define() -> Any:
    library = torch.library.Library("gradients", "FRAGMENT")
    library.define("parts(Tensor x) -> (Tensor, Tensor)")
    library.impl("parts", lambda x: (x * x, x * 3), "CPU")
    library.impl("parts", lambda x: (torch.empty_like(x), torch.empty_like(x)), "Meta")
    return library
