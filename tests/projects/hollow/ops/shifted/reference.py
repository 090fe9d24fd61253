"""x * factor where the mask is true, plus the bias."""

import numpy as np
from numpy.typing import NDArray


def shifted(
    x: NDArray[np.floating], mask: NDArray[np.bool_], bias: NDArray[np.floating] | None, *, factor: float
) -> NDArray[np.floating]:
    y: NDArray[np.floating] = np.where(mask, x * np.float32(factor), x) + (0 if bias is None else bias)
    return y
