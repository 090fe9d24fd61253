"""mylibrary::addandround_op in Python."""

from typing import Any

import torch

NAME = "mylibrary::addandround_op"


def add_and_round(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float64, torch.int64):
        raise RuntimeError(f"add_and_round: x must be torch.float32, torch.float64 or torch.int64, got {x.dtype}")
    return torch.round(x + x)


def fake(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def define() -> Any:
    """Define the operator; return what keeps the definition alive."""
    if hasattr(torch.library, "custom_op"):  # since torch 2.4
        operator = torch.library.custom_op(NAME, add_and_round, mutates_args=())
        operator.register_fake(fake)
        return operator
    namespace, _, name = NAME.partition("::")
    library = torch.library.Library(namespace, "DEF")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, add_and_round, "CPU")
    library.impl(name, fake, "Meta")
    return library
