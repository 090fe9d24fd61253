"""2 * x + w."""

import numpy as np
from numpy.typing import NDArray


def planted(x: NDArray[np.floating], w: NDArray[np.floating]) -> NDArray[np.floating]:
    return 2 * x + w
