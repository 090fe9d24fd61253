"""Operators that onnx.reference 1.23 computes otherwise than ONNX describes them, or not in memory. No runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as ConvOfOnnx

from opmatrix.testdata.arrays import Array

_COLUMNS = 1 << 22  # elements of the matrix in which onnx.reference computes a Conv; it takes 30 bytes for each
_BLOCK = 1 << 17  # positions of an output that are computed at once


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


class Conv(ConvOfOnnx):
    """onnx.reference copies the input for each place of the kernel. A large one is the sum over these places here, in
    float64, a block of the output at a time."""

    op_domain = ""

    def _run(
        self,
        X: Array,  # noqa: N803 - the names of ONNX
        W: Array,  # noqa: N803
        B: Array | None = None,  # noqa: N803
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array, ...]:
        kernel, groups = W.shape[2:], group or 1
        ones = [1] * len(kernel)
        steps, gaps = strides or ones, dilations or ones
        sizes = X.shape[2:]
        spans = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps, strict=False)]
        borders = list(zip(*np.reshape(pads or [0, 0] * len(kernel), (2, -1)).tolist(), strict=True))
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = [max(0, -(-n // s) * s - s + span - n) for n, s, span in zip(sizes, steps, spans, strict=False)]
            borders = [(n // 2, n - n // 2) if auto_pad == "SAME_UPPER" else (n - n // 2, n // 2) for n in wanted]
        elif auto_pad == "VALID":
            borders = [(0, 0)] * len(kernel)
        padded = [n + sum(border) for n, border in zip(sizes, borders, strict=False)]
        made = [(n - span) // s + 1 for n, s, span in zip(padded, steps, spans, strict=False)]
        if math.prod((len(X), *W.shape[1:], groups, *made)) <= _COLUMNS:
            return super()._run(X, W, B, auto_pad, dilations, group, kernel_shape, pads, strides)  # type: ignore[no-any-return, no-untyped-call]
        x = np.pad(X, [(0, 0), (0, 0), *borders]).reshape(len(X), groups, -1, *padded)
        w = W.reshape(groups, -1, *W.shape[1:]).astype(np.float64)
        result = np.empty((len(X), groups, w.shape[1], *made), X.dtype)
        bias = 0.0 if B is None else B.astype(np.float64).reshape(groups, -1, 1)
        rows = max(1, _BLOCK // math.prod(made[1:]))
        for image in range(len(X)):
            for row in range(0, made[0], rows):
                block = [min(rows, made[0] - row), *made[1:]]
                total = np.zeros((groups, w.shape[1], math.prod(block))) + bias
                for place in np.ndindex(*kernel):
                    first = [at * gap for at, gap in zip(place, gaps, strict=True)]
                    first[0] += row * steps[0]
                    taken: tuple[Any, ...] = tuple(
                        slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, block, steps, strict=True)
                    )
                    part = x[image][(slice(None), slice(None), *taken)].astype(np.float64)
                    total += w[(..., *place)] @ part.reshape(*part.shape[:2], -1)
                result[image, :, :, row : row + rows] = total.reshape(*total.shape[:2], *block)
        return (result.reshape(len(X), -1, *made),)


CORRECTED = (LRN, GlobalMaxPool, Conv)
