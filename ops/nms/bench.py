"""What `doit bench` times of nms: few and many boxes, compared with ONNX's NonMaxSuppression and torchvision's nms."""

from typing import Any

import numpy as np

from opmatrix.bench.spec import Bench, Function, OnnxNode, Row
from opmatrix.spec import DType, Random

IOU = 0.5
COUNTS = (100, 1000, 10000)


def row(count: int, dtype: DType) -> Row:
    return Row(
        name=f"{count}_{dtype}",
        types={"T": dtype},
        inputs={"boxes": Random(shape=(count, 4), deviation=100.0), "scores": Random(shape=(count,), mean=3.0)},
        attributes={"iou_threshold": IOU},
        no_truth="the reference makes a matrix of all overlaps, 0.8 GB" if count > 5000 else "",
    )


def ordered(boxes: Any) -> Any:
    """Return the corners with the smaller coordinates first."""
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def onnx_inputs(boxes: Any, scores: Any, **_: Any) -> tuple[Any, ...]:
    """Return the inputs of NonMaxSuppression: a batch of one, one class, all boxes, and both thresholds."""
    limits = (np.array([len(boxes)], np.int64), np.array([IOU], np.float32), np.array([0.0], np.float32))
    return ordered(boxes)[None], scores[None, None], *limits


def onnx_outputs(made: list[Any]) -> dict[str, Any]:
    return {"indices": made[0][:, 2]}


def torchvision_inputs(boxes: Any, scores: Any, **_: Any) -> tuple[Any, ...]:
    import torch

    return torch.from_numpy(ordered(boxes.numpy())), scores, IOU


BENCH = Bench(
    rows=(*(row(count, "float32") for count in COUNTS), row(COUNTS[1], "float64")),
    peers=(
        OnnxNode(
            name="NonMaxSuppression", op_type="NonMaxSuppression", inputs=onnx_inputs, outputs=onnx_outputs,
            dtypes=("float32",),
        ),
        Function(
            name="torchvision", function="torchvision.ops:nms", inputs=torchvision_inputs, compile=False,
            outputs=lambda kept: {"indices": kept},
        ),
    ),
)  # fmt: skip
