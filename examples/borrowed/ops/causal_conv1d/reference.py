"""A causal depthwise convolution in NumPy: all windows at once, in the precision of numpy.longdouble."""

import numpy as np
from numpy.typing import NDArray


def causal_conv1d(
    x: NDArray[np.floating],
    weight: NDArray[np.floating],
    bias: NDArray[np.floating] | None,
    initial_states: NDArray[np.floating] | None,
    *,
    activation: str,
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return out (B, D, L) and final_states (B, D, W - 1). Raises ValueError for initial states of another shape."""
    width = weight.shape[1]
    states = (*x.shape[:2], width - 1)
    before = np.zeros(states, x.dtype) if initial_states is None else initial_states
    if before.shape != states:
        raise ValueError(f"initial_states of shape {before.shape}, allowed: {states}")
    whole = np.concatenate([before, x], axis=2)
    exact = np.zeros(x.shape, np.longdouble)
    with np.errstate(all="ignore"):  # infinities and NaN go through as IEEE 754 has it
        for k in range(width):
            exact += whole[:, :, k : k + x.shape[2]].astype(np.longdouble) * weight[:, k, None]
        if bias is not None:
            exact += bias[:, None]
        if activation != "none":
            exact /= 1 + np.exp(-exact)
        return exact.astype(x.dtype), whole[:, :, x.shape[2] :]
