"""Load tiny models, to see which IR versions and opsets ONNX Runtime reads."""

from __future__ import annotations

from onnx import TensorProto, helper

from pipeline.trial.runtime import RefusedError, Runtime

_OLDEST = 7  # every ONNX Runtime that we know reads this opset, in IR version 3
_TRIED = 40  # no ONNX Runtime reads an opset or an IR version as high


def newest() -> tuple[int, int]:
    """Return the newest IR version and the newest opset that the running ONNX Runtime reads."""
    ir = max((version for version in range(3, _TRIED) if _reads(ir=version, opset=_OLDEST)), default=0)
    return ir, max((opset for opset in range(_OLDEST, _TRIED) if _reads(ir=ir, opset=opset)), default=0)


def _reads(*, ir: int, opset: int) -> bool:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    model = helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])
    try:
        Runtime(None).sessions(model.SerializeToString(), settings=["optimised"])
    except RefusedError:
        return False
    return True
