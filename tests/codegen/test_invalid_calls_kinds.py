"""What torch and ONNX Runtime report for wrong calls of the operators other than group_norm; the process survives.

One child process per framework makes each operator's calls, and must still compute at the end.
"""

from __future__ import annotations

import json

import pytest

from opmatrix.project.paths import Paths
from tests.support.building import build, copy_project
from tests.support.wrong_calls import CALL_ALL, messages

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

BOXES = "nms: boxes must have shape (A, N + 4 - A) and 4 along axis"
# The call, as Python, and the whole message.
TORCH = {
    "dual_residual": {
        "op(x.int(), y, 1.0)": "dual_residual: x must be float32, float64, float16 or bfloat16, got int32",
        "op(x, y.double(), 1.0)": "dual_residual: y must be float32 as x is, got float64",
        "op(x, y[:1], 1.0)": "dual_residual: y must have the shape of x, (2, 3), got (1, 3)",
        "op(x, y[0], 1.0)": "dual_residual: y must have the shape of x, (2, 3), got (3,)",
        "op(x, y, 1e300)": "dual_residual: alpha must fit float32, got 1e+300",
        "op(x, y.to_sparse(), 1.0)": "dual_residual: y must be a dense tensor, got a sparse or otherwise packed one",
        "op(x, y.to('meta'), 1.0)": "dual_residual: y must be on the CPU, got a tensor on the meta device",
        "op(*[torch.empty_strided((0, 2**40, 2**40), (1, 1, 1))] * 2, 1.0)": (
            "dual_residual: torch could not allocate an output: Stride calculation overflowed"
        ),
        "op(x, y)": None,  # torch itself refuses it, with its own message
        "op(x, y, 1.0, 2.0)": None,
        "op(x, y, 'much')": None,
        "op([x], y, 1.0)": None,
    },
    "nms": {
        "op(b.long(), s, None, None, [])": "nms: boxes must be float32, float64, float16 or bfloat16, got int64",
        "op(b, s.double(), None, None, [])": "nms: scores must be float32 as boxes is, got float64",
        "op(b, s, c.int(), None, [])": "nms: classes must be int64, got int32",
        "op(b, s, None, c, [])": "nms: valid must be bool, got int64",
        "op(b, s, None, None, [s, s.double()])": "nms: factors must be float32 as boxes is, got float64",
        "op(b[0], s, None, None, [])": f"{BOXES} with N = 3 as in scores, got (4,)",
        "op(b, s[:2], None, None, [])": f"{BOXES} with N = 2 as in scores, got (3, 4)",
        "op(b[:, :3], s, None, None, [])": f"{BOXES} with N = 3 as in scores, got (3, 3)",
        "op(b, s, None, None, [], axis=0)": f"{BOXES} with axis = 0, got (3, 4)",
        "op(b, s, None, None, [], axis=2)": "nms: axis must be at least -2 and at most 1, got 2",
        "op(b, s, None, None, [], axis=-3)": "nms: axis must be at least -2 and at most 1, got -3",
        "op(b, s, c[:2], None, [])": "nms: classes must have shape (N,) with N = 3 as in scores, got (2,)",
        "op(b, s, None, v[None], [])": "nms: valid must have shape (N,) with N = 3 as in scores, got (1, 3)",
        "op(b, s, None, None, [s, s[1:]])": "nms: factors must have shape (N,) with N = 3 as in scores, got (2,)",
        "op(b, s, None, None, [], iou_threshold=1.5)": ("nms: iou_threshold must be at least 0 and at most 1, got 1.5"),
        "op(b, s, None, None, [], iou_threshold=float('nan'))": (
            "nms: iou_threshold must be at least 0 and at most 1, got nan"
        ),
        "op(b, s, None, None, [], max_boxes=-1)": "nms: max_boxes must be at least 0, got -1",
        "op(b, s, None, None, [], format='corner')": "nms: format must be one of corners, center, got corner",
        "op(b, s, None, None, [], format='center\\0x')": "nms: format must hold no NUL",
        "op(b, s, None, None, [], coordinates=[0, 1, 2])": "nms: coordinates must be 4 numbers, got 3",
        "op(b, s, None, None, [], coordinates=[0, 1, 2, 4])": (
            "nms: coordinates must each be at least 0 and at most 3, got 4"
        ),
        "op(b, s, None, None, [], coordinates=[0, 1, 2, 2])": (
            "nms: coordinates must hold each of 0, 1, 2 and 3 once, got 0, 1, 2, 2"
        ),
        "op(b, s, None, None, [s.to('meta')])": "nms: factors must be on the CPU, got a tensor on the meta device",
        "op(b, s, c.to_sparse(), None, [])": (
            "nms: classes must be a dense tensor, got a sparse or otherwise packed one"
        ),
        "op(b, s, None, None)": None,
        "op(b, s, None, None, s, axis='last')": None,
        "op(b, s, None, None, [None])": None,
        "op(b, s, None, None, [], format=1)": None,
        "op(b, s, None, None, [], coordinates='xyxy')": None,
    },
}
RIGHT_TORCH = {
    # The binding allocates an output with at most 16 axes in another way than one with more.
    "dual_residual": "assert torch.equal(op(x, y, 2.0)[1], 2 * y - x)\n"
    "for rank in (0, 1, 16, 17): assert op(*[torch.ones((1,) * rank)] * 2, 3.0)[0].stride() == (1,) * rank",
    "nms": "assert op(b, s, c, v, [s, s])[0].tolist() == [2, 1] and op(b, s, None, None, [])[0].tolist() == [2, 1]",
}
# The call, as Python, and a part of the message.
ORT = {
    "dual_residual": {
        "run([x, x[:1]], alpha=1.0)": "dual_residual: y must have the shape of x, (2, 3), got (1, 3)",
        "run([x, x])": "dual_residual: attribute alpha is missing; it must be of type float",
        "run([x, x], alpha=1)": "dual_residual: attribute alpha must be of type float, got int",
        "run([x, x.astype(np.float64)], alpha=1.0)": "cstDualResidual",
        "run([x.astype(np.int64), x.astype(np.int64)], alpha=1.0)": "cstDualResidual",
        "run([x], alpha=1.0)": "cstDualResidual",
        "run([x, x, x], alpha=1.0)": "cstDualResidual",
        "run([x, None], alpha=1.0)": "cstDualResidual",
    },
    "custom_op_one": {
        "run([x, x[:, :2]])": "custom_op_one: y must have the shape of x, (2, 3), got (2, 2)",
        "run([x, x.astype(np.float64)])": "CustomOpOne",
        "run([x.astype(np.int32), x.astype(np.int32)])": "CustomOpOne",
        "run([x])": "CustomOpOne",
    },
    "custom_op_two": {
        "run([x.astype(np.float16)])": "CustomOpTwo",
        "run([x, x])": "CustomOpTwo",
    },
    "nms": {
        "run([b, s], format='corner')": "nms: format must be one of corners, center, got corner",
        "run([b, s], format=1)": "nms: attribute format must be of type string, got int",
        "run([b, s], coordinates=[0, 1, 2])": "nms: coordinates must be 4 numbers, got 3",
        "run([b, s], coordinates=[3, 2, 1, -1])": "nms: coordinates must each be at least 0 and at most 3, got -1",
        "run([b, s], coordinates=[0.0, 1.0])": "nms: attribute coordinates must be of type ints, got floats",
        "run([b, s], coordinates=2)": "nms: attribute coordinates must be of type ints, got int",
        "run([b, s], axis=0)": f"{BOXES} with axis = 0, got (3, 4)",
        "run([b, s], axis=5)": "nms: axis must be at least -2 and at most 1, got 5",
        "run([b, s], axis=1.0)": "nms: attribute axis must be of type int, got float",
        "run([b, s], max_boxes=-2)": "nms: max_boxes must be at least 0, got -2",
        "run([b, s], iou_threshold=-0.5)": "nms: iou_threshold must be at least 0 and at most 1, got -0.5",
        "run([b[0], s])": f"{BOXES} with N = 3 as in scores, got (4,)",
        "run([b, s[:2]])": f"{BOXES} with N = 2 as in scores, got (3, 4)",
        "run([b, s, c[:1]])": "nms: classes must have shape (N,) with N = 3 as in scores, got (1,)",
        "run([b, s, None, v[:1]])": "nms: valid must have shape (N,) with N = 3 as in scores, got (1,)",
        "run([b, s, None, None, s, s[:1]])": "nms: factors must have shape (N,) with N = 3 as in scores, got (1,)",
        "run([b, s, s])": "NonMaximumSuppression",
        "run([b, s, None, None, s.astype(np.float64)])": "NonMaximumSuppression",
        "run([b])": "NonMaximumSuppression",
    },
}
RIGHT_ORT = {
    "dual_residual": "assert (run([x, x + 1], alpha=2.0)[0] == x - 1).all()",
    "custom_op_one": "assert (run([x, x])[0] == 2 * x).all()",
    "custom_op_two": "assert (run([x / 2])[0] == np.round(x / 2)).all()",
    "nms": "assert run([b, s, c, v, s])[0].tolist() == run([b, s])[0].tolist() == [2, 1]",
}
TORCH_PROGRAM = (
    """
import json, sys, warnings
import torch
warnings.simplefilter("ignore")
library, name, right, calls = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
torch.ops.load_library(library)
space, function = name.split("::")
op = getattr(getattr(torch.ops, space), function)
x, y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
b = torch.tensor([[0.0, 0, 8, 8], [1, 0, 9, 8], [20, 0, 28, 8]])
s, c, v = torch.tensor([0.5, 0.75, 1.0]), torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
"""
    + CALL_ALL
    + """exec(right)
print(json.dumps(said))
"""
)
ORT_PROGRAM = (
    """
import json, sys
import numpy as np, onnxruntime
from onnx import TensorProto, helper
library, name, right, calls = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
domain, op_type = name.split("::")
OUTPUTS = {"cstDualResidual": 2, "NonMaximumSuppression": 3}.get(op_type, 1)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
b = np.array([[0, 0, 8, 8], [1, 0, 9, 8], [20, 0, 28, 8]], np.float32)
s, c, v = np.array([0.5, 0.75, 1], np.float32), np.zeros(3, np.int64), np.ones(3, bool)

def run(values, **attributes):
    if op_type == "NonMaximumSuppression":  # ONNX counts absent inputs before a variadic one
        values = [*values, *[None] * (4 - len(values) if len(values) > 1 else 0)]
    feeds = {f"i{k}": value for k, value in enumerate(values) if value is not None}
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(values)]
    outputs = [f"o{k}" for k in range(OUTPUTS)]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attributes)
    given = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), None) for k, a in feeds.items()]
    graph = helper.make_graph([node], "g", given, [onnx_value(o) for o in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)

def onnx_value(name):
    return helper.make_empty_tensor_value_info(name)

"""
    + CALL_ALL
    + """exec(right)
assert "torch" not in sys.modules
print(json.dumps(said))
"""
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return copy_project(tmp_path_factory.mktemp("kinds"), *ORT)


@pytest.mark.parametrize("op", ORT)
def test_the_message(op: str, paths: Paths) -> None:
    spec = build(paths, op).spec
    wrong = {}
    if spec.torch is not None:
        table = TORCH[op]
        said = messages(TORCH_PROGRAM, paths.torch_library(op), spec.torch.name, RIGHT_TORCH[op], json.dumps([*table]))
        refused = {c for c, text in table.items() if text is None and c in said}
        wrong = {c: said.get(c, "it ran") for c, text in table.items() if c not in refused and said.get(c, "") != text}
    name = f"{spec.onnx.domain}::{spec.onnx.op_type}"
    said = messages(ORT_PROGRAM, paths.ort_library(op), name, RIGHT_ORT[op], json.dumps([*ORT[op]]))
    wrong |= {c: said.get(c, "it ran") for c, text in ORT[op].items() if text not in said.get(c, "it ran")}
    assert not wrong
