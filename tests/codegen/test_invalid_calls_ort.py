"""What ONNX Runtime reports for a wrong node or input of group_norm: operator, argument and value; no crash.

One child process without torch runs all models, and must still compute at the end.
"""

from __future__ import annotations

import json

import pytest

from tests.support.building import build, copy_project
from tests.support.wrong_calls import messages

pytestmark = [pytest.mark.compile, pytest.mark.ort]

# The difference from a right model and its inputs, as Python, and a part of the message.
CALLS = {
    "dict(attributes={'epsilon': 1})": "group_norm: attribute epsilon must be of type float, got int",
    "dict(attributes={'epsilon': 'a'})": "group_norm: attribute epsilon must be of type float, got string",
    "dict(attributes={'epsilon': [1.0]})": "group_norm: attribute epsilon must be of type float, got floats",
    "dict(attributes={'epsilon': [1]})": "group_norm: attribute epsilon must be of type float, got ints",
    "dict(attributes={'epsilon': ['a']})": "group_norm: attribute epsilon must be of type float, got strings",
    "dict(attributes={'epsilon': helper.make_tensor('t', 1, [1], [1.0])})": (
        "group_norm: attribute epsilon must be of type float, got tensor"
    ),
    "dict(attributes={'eps': 1.0})": "group_norm: unknown attribute eps; in ONNX its name is epsilon",
    "dict(attributes={'epsilon': 1e-5, 'eps': [1]})": "group_norm: unknown attribute eps; in ONNX its name is epsilon",
    "dict(attributes={'epsilon': -1.0})": "group_norm: epsilon must be at least 0, got -1",
    "dict(attributes={'epsilon': float('nan')})": "group_norm: epsilon must be at least 0, got nan",
    "dict(g=np.array([4], np.float32))": "group_norm: num_groups must divide the 6 channels of x, got 4",
    "dict(g=np.array([0], np.float32))": "group_norm: num_groups must be a whole number greater than 0, got 0",
    "dict(g=np.array([1.5], np.float32))": "group_norm: num_groups must be a whole number greater than 0, got 1.5",
    "dict(g=np.array([np.nan], np.float32))": "group_norm: num_groups must be a whole number greater than 0, got nan",
    "dict(g=np.array(3, np.float32))": "group_norm: num_groups must have shape (1,), got ()",
    "dict(x=np.ones(6, np.float32))": "group_norm: x must have shape (N, C, ...), got (6,)",
    "dict(s=np.ones(5, np.float32))": "group_norm: scale must have shape (C,) with C = 6 as in x, got (5,)",
    "dict(b=np.ones((6, 1), np.float32))": "group_norm: bias must have shape (C,) with C = 6 as in x, got (6, 1)",
    # ONNX Runtime itself refuses these, by the types that the custom ops declare.
    "dict(x=np.ones((2, 6, 5), np.int32))": "'tensor(int32)' of input parameter (x) of operator (mygroupnorm)",
    "dict(x=np.ones((2, 6, 5), np.float16))": "no kernel def matches node inputs for Op: mygroupnorm",
    "dict(g=np.array([3], np.float64))": "'tensor(double)' of input parameter (num_groups) of operator (mygroupnorm)",
    "dict(s=np.ones(6, np.float64))": "mygroupnorm",
}
PROGRAM = """
import json, sys
import numpy as np, onnxruntime
from onnx import helper, numpy_helper
path, calls = sys.argv[1], json.loads(sys.argv[2])

def run(attributes={"epsilon": 1e-5}, shapes=None, **inputs):
    x, one = np.arange(210, dtype=np.float32).reshape(1, 6, 35), np.ones(6, np.float32)
    feeds = dict(x=x, num_groups=np.array([3], np.float32), scale=one, bias=one)
    feeds |= {{"g": "num_groups", "s": "scale", "b": "bias"}.get(k, k): v for k, v in inputs.items()}
    node = helper.make_node("mygroupnorm", list(feeds), ["y"], domain="mydomain", **attributes)
    element = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
    given = [helper.make_tensor_value_info(k, element(a), shapes) for k, a in feeds.items()]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", element(feeds["x"]), shapes)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mydomain", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]

said = {}
for call in calls:
    try:
        run(**eval(call))
    except Exception as error:
        said[call] = str(error)
y = run()
assert abs(y.reshape(3, -1).mean(1) - 1).max() < 1e-5 and abs(y.reshape(3, -1).std(1) - 1).max() < 1e-5
assert (run(attributes={}) == y).all()  # the default
assert run(x=np.ones((0, 6, 5), np.float32)).shape == (0, 6, 5)
assert "torch" not in sys.modules
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    paths = copy_project(tmp_path_factory.mktemp("ort"))
    build(paths)
    return messages(PROGRAM, paths.ort_library("group_norm"), json.dumps([*CALLS]))


@pytest.mark.parametrize("call", CALLS)
def test_the_message(call: str, said: dict[str, str]) -> None:
    assert CALLS[call] in said.get(call, "it ran")
