"""The three nodes that add_and_round becomes."""

from typing import Any

ONNX = {"float32": 1, "int64": 7, "float64": 11}  # of onnx.TensorProto


def custom(g: Any, x: Any) -> Any:
    total = g.op("test.customop::CustomOpOne", x, x)
    rounded = g.op("test.customop::CustomOpTwo", total)
    return g.op("Cast", rounded, to_i=ONNX[g.dtype(x)])
