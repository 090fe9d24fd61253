"""Operators that onnx.reference 1.23 computes otherwise than ONNX describes them. No runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from opmatrix.testdata.arrays import Array


class LRN(OpRun):
    """onnx.reference normalizes as many channels as there are images."""

    op_domain = ""

    def _run(
        self, x: Array, alpha: Any = None, beta: Any = None, bias: Any = None, size: Any = None
    ) -> tuple[Array, ...]:
        alpha, beta, bias = (
            default if given is None else given for given, default in ((alpha, 1e-4), (beta, 0.75), (bias, 1.0))
        )
        squares = x.astype(np.float64) ** 2
        before, behind = (size - 1) // 2, -((1 - size) // 2)
        sums = [squares[:, max(0, c - before) : c + behind + 1].sum(axis=1) for c in range(x.shape[1])]
        result = x / (bias + alpha / size * np.stack(sums, axis=1)) ** beta
        return (result.astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """onnx.reference reduces two axes alone."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


CORRECTED = (LRN, GlobalMaxPool)
