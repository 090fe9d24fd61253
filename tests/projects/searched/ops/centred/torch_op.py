"""searched::centred in Python."""

from typing import Any

import torch


def centred(x: torch.Tensor, w: torch.Tensor, with_sum: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    few = x.clip(-9, 9)
    return x * w, few.sum(-1) if with_sum else x.new_empty(0)


def define() -> Any:
    library = torch.library.Library("searched", "FRAGMENT")
    library.define("centred(Tensor x, Tensor w, bool with_sum=True) -> (Tensor, Tensor)")
    library.impl("centred", centred, "CPU")
    return library
