import ml_dtypes
import numpy as np
from numpy.typing import NDArray

MOST = float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)


def rescale(
    x: NDArray[np.floating], scale: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]:
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    y = wide / scale.astype(wide.dtype)[:, None]
    return y, np.clip(y, -MOST, MOST), np.abs(wide).max(axis=1, initial=0)
