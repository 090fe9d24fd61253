import numpy as np
from numpy.typing import NDArray


def weighted_sum(
    x: NDArray[np.floating], weights: NDArray[np.floating], scale: float
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]:
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    total = wide @ weights.astype(wide.dtype) * wide.dtype.type(scale)
    return total, wide.max(axis=1, initial=-np.inf), wide
