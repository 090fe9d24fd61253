"""Measure which IR versions and opsets the running ONNX Runtime reads and which dtypes it carries."""

from __future__ import annotations

import json

import onnxruntime
from onnx import TensorProto, helper

from opmatrix.files import write_text
from opmatrix.matrix.cells import Ort
from opmatrix.matrix.probe_rows import source
from opmatrix.ort_checks import probe_dtypes
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError
from opmatrix.project.paths import Paths
from opmatrix.version import minor

_OLDEST = 7  # every supported ONNX Runtime reads this opset, in IR version 3
_TRIED = 40  # higher than any opset or IR version that an ONNX Runtime reads


def run(layout: Paths) -> None:
    """Write the newest IR version and opset that it reads, and why it does not carry a dtype."""
    version = minor(onnxruntime.__version__)
    ir = max((version for version in range(3, _TRIED) if _reads(ir=version, opset=_OLDEST)), default=0)
    opset = max((opset for opset in range(_OLDEST, _TRIED) if _reads(ir=ir, opset=opset)), default=0)
    name = f"ort{version}"
    write_text(layout.probe_result(f"{name}-dtypes"), json.dumps(probe_dtypes.measure(layout), indent=1) + "\n")
    write_text(layout.probe_result(name), json.dumps({"ir": ir, "opset": opset}, indent=1) + "\n")
    print(f"ONNX Runtime {source(version, Ort(ir=ir, opset=opset))}")


def _reads(*, ir: int, opset: int) -> bool:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    model = helper.make_model(graph, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])
    try:
        OrtSessions(None).sessions(model.SerializeToString(), settings=["optimised"])
    except RefusedError:
        return False
    return True
