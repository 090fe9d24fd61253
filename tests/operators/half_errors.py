"""Compare the errors of operators in float16 and bfloat16 with those of torch's own kernels, in a process of its own.

``python -m tests.operators.half_errors BUILD`` loads the libraries below BUILD/compile. The truth is the formula in
float64, computed from the same halves by torch's operators for float64, or by NumPy for nms. Prints a table; with
--json, the rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Errors of one call: the largest, and the sum of all; for nms, the number of boxes wrongly kept or lost."""

    op: str
    dtype: str
    inputs: str
    ours: tuple[float, float]
    torch: tuple[float, float]

    @property
    def ratio(self) -> float:
        """The larger of both ratios; an error where torch has none is infinitely larger."""
        pairs = zip(self.ours, self.torch, strict=True)
        return max((0.0 if a == 0 else float("inf")) if b == 0 else a / b for a, b in pairs)

    def __str__(self) -> str:
        (ours, all_ours), (of_torch, all_of_torch) = self.ours, self.torch
        return (
            f"{self.op:<14} {self.dtype:<9} {self.inputs:<40} largest {ours:.3g} of {of_torch:.3g}, "
            f"all {all_ours:.3g} of {all_of_torch:.3g}: {self.ratio:.2f}"
        )


def errors(found: Tensor, truth: Tensor) -> tuple[float, float]:
    difference = (found.double() - truth).abs()
    return difference.max().item(), difference.sum().item()


def row(op: str, inputs: str, ours: Tensor, of_torch: Tensor, truth: Tensor) -> Row:
    dtype = str(ours.dtype).removeprefix("torch.")
    return Row(op=op, dtype=dtype, inputs=inputs, ours=errors(ours, truth), torch=errors(of_torch, truth))


def group_norm() -> Iterator[Row]:
    shapes = (((2, 6, 5, 7), 3), ((4, 12), 3), ((3, 32, 1, 1), 8), ((2, 64, 28, 28), 32), ((1, 8, 64, 64), 2))
    for dtype in DTYPES:
        for shape, groups in shapes:
            for mean, deviation in ((0, 1), (10, 1), (300, 5), (0, 1e-3), (0, 9000)):
                x = torch.normal(float(mean), float(deviation), shape).to(dtype)
                scale, bias = torch.randn(shape[1]).to(dtype), torch.randn(shape[1]).to(dtype)
                ours = torch.ops.mynamespace.custom_group_norm(x, torch.tensor([float(groups)]), scale, bias, 1e-5)
                of_torch = functional.group_norm(x, groups, scale, bias, 1e-5)
                # The operator's epsilon is a float of ONNX.
                truth = functional.group_norm(
                    x.double(), groups, scale.double(), bias.double(), float(np.float32(1e-5))
                )
                yield row("group_norm", f"{shape}, mean {mean}, deviation {deviation}", ours, of_torch, truth)


def dual_residual() -> Iterator[Row]:
    for dtype in DTYPES:
        for shape in ((7,), (3, 4, 5), (257, 311)):
            for mean, deviation, alpha in ((0, 1, -1.7), (100, 1, 0.9), (0, 1e-4, 0.3), (0, 5000, 1.3)):
                x, y = (torch.normal(float(mean), float(deviation), shape).to(dtype) for _ in range(2))
                ours = torch.stack(torch.ops.cst.dual_residual(x, y, alpha))
                of_torch = torch.stack((alpha * x - y, alpha * y - x))
                a, b, factor = x.double(), y.double(), float(np.float32(alpha))
                truth = torch.stack((factor * a - b, factor * b - a))
                inputs = f"{shape}, mean {mean}, deviation {deviation}"
                yield row("dual_residual", inputs, ours, of_torch, truth)


def nms() -> Iterator[Row]:
    for dtype in DTYPES:
        for count, size, spread in ((30, 10.0, 20.0), (1000, 20.0, 90.0), (1000, 0.2, 0.5), (300, 300.0, 900.0)):
            corner, sides = torch.rand(count, 2) * spread, (0.5 + torch.rand(count, 2)) * size
            boxes = torch.cat((corner, corner + sides), 1).to(dtype)
            scores, factor = (torch.rand(count) + 0.1).to(dtype), (torch.rand(count) + 0.1).to(dtype)
            _, _, kept = torch.ops.opmatrix.nms(boxes, scores, None, None, [factor], 0.5, 0.0, 0)
            truth = in_numpy(boxes.double().numpy(), (scores.double() * factor.double()).numpy())
            wrong = [float((mask.numpy() != truth).sum()) for mask in (kept, in_torch(boxes, scores * factor))]
            yield Row(
                op="nms", dtype=str(dtype).removeprefix("torch."), inputs=f"{count} boxes of {size} in {spread}",
                ours=(wrong[0], wrong[0]), torch=(wrong[1], wrong[1]),
            )  # fmt: skip


def in_torch(boxes: Tensor, scores: Tensor) -> Tensor:
    """Return which boxes are kept, by torch's operators in the dtype of `boxes`."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low, high = (pick(boxes[:, None, at], boxes[None, :, at]) for pick, at in
                 ((torch.maximum, slice(0, 2)), (torch.minimum, slice(2, 4))))  # fmt: skip
    sides = (high - low).clamp(min=0)
    shared = sides[..., 0] * sides[..., 1]
    overlaps = shared / (areas[:, None] + areas - shared) > 0.5
    kept = torch.zeros(len(boxes), dtype=torch.bool)
    for at in scores.sort(descending=True, stable=True).indices:
        kept[at] = not (overlaps[at] & kept).any()
    return kept


def in_numpy(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return which boxes are kept, box by box in float64."""
    kept = np.zeros(len(boxes), dtype=bool)
    for at in np.argsort(-scores, kind="stable"):
        x0, y0, x1, y1 = boxes[at]
        others = boxes[kept]
        width = np.clip(np.minimum(others[:, 2], x1) - np.maximum(others[:, 0], x0), 0, None)
        height = np.clip(np.minimum(others[:, 3], y1) - np.maximum(others[:, 1], y0), 0, None)
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        union = areas + (x1 - x0) * (y1 - y0) - width * height
        kept[at] = not (width * height > 0.5 * union).any()
    return kept


OPERATORS = {"group_norm": group_norm, "dual_residual": dual_residual, "nms": nms}


def main(build: str, *options: str) -> None:
    """Print the rows of the operators that are built."""
    torch.manual_seed(0)
    rows: list[Row] = []
    for name, measured in OPERATORS.items():
        library = Path(build) / f"compile/{name}/lib{name}_torch.so"
        if library.is_file():
            torch.ops.load_library(str(library))
            rows += measured()
    if "--json" in options:
        print(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows]))
    else:
        print(*rows, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
