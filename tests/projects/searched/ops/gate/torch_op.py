"""searched::gate in Python."""

from typing import Any

import numpy as np
import torch


def gate(x: torch.Tensor, w: torch.Tensor, threshold: float = 0.5, times: int = 1) -> torch.Tensor:
    limit = float(np.float32(threshold))
    return torch.where(x > limit, x * times, w)


def define() -> Any:
    library = torch.library.Library("searched", "FRAGMENT")
    library.define("gate(Tensor x, Tensor w, float threshold=0.5, int times=1) -> Tensor")
    library.impl("gate", gate, "CPU")
    return library
