"""Inputs whose values are tied, in both frameworks: other values are refused. tests/faults/tied.toml has the faults."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# Calls in torch and in ONNX Runtime, as Python, and their message.
CALLS = {
    "gather([[0], [1], [2]], [0, 3])": "gather_rows: index must be in [0, N) with N = 3 as in x, got 3 at (1,)",
    "gather([], [0])": "gather_rows: index must be in [0, N) with N = 0 as in x, got 0 at (0,)",
    "gather([[0], [1], [2]], [0, 9, 1, 9, 2], every=2)": "",  # a view of 0, 1, 2 where torch has strides
    "gather([[0], [1], [2]], [0, 9, 3, 9, 2], every=2)": "index must be in [0, N) with N = 3 as in x, got 3 at (1,)",
    "gather([], [])": "",
    "bags()": "",
    "bags(x=[[1.0, NAN], [3.0, 4.0]])": "bag_sums: x must be finite, got nan at (0, 1)",
    "bags(x=[[1.0, 2.0], [3.0, -INF]])": "bag_sums: x must be finite, got -inf at (1, 1)",
    "bags(x=[], offsets=[0])": "bag_sums: x must have at least one element, got shape (0, 2)",
    "bags(offsets=[])": "",
    "bags(offsets=[0, 3])": "bag_sums: offsets must be at least 0 and at most N with N = 2 as in x, got 3 at (1,)",
    "bags(offsets=[0, 2, 1])": (
        "bag_sums: offsets must be sorted in ascending order along its last axis, got 1 after 2 at (2,)"
    ),
    "bags(offsets=[0, 2, 2])": "",
    "bags(weight=[0.0, 0.5])": "",
    "bags(weight=[0.25, 0.75])": (
        "bag_sums: weight must be at least 0 and at most limit with limit = 0.5, got 0.75 at (1,)"
    ),
    "bags(weight=[NAN, 0.5])": "weight must be at least 0 and at most limit with limit = 0.5, got nan at (0,)",
    "bags(codes=[[0, 1], [1, 4]])": "",
    "bags(codes=[[0, 1], [1, 3]])": "bag_sums: codes must be one of 0, 1, 4, got 3 at (1,)",
    "times(offsets=[0, 0, 2, 2, 3, 3])": "",
    "times(offsets=[0, 3])": "",
    "times(offsets=[0, 0], columns=[])": "",
    "times(offsets=[0], columns=[])": "",
    "times(offsets=[0, 2])": (
        "csr_times: offsets must start at 0 and end at Z along its last axis with Z = 3 as in elements, got 2 at (1,)"
    ),
    "times(offsets=[1, 2, 3])": (
        "offsets must start at 0 and end at Z along its last axis with Z = 3 as in elements, got 1 at (0,)"
    ),
    "times(offsets=[0])": (
        "offsets must start at 0 and end at Z along its last axis with Z = 3 as in elements, got 0 at (0,)"
    ),
    "times(offsets=[0, 2, 1, 3])": (
        "csr_times: offsets must be sorted in ascending order along its last axis, got 1 after 2 at (2,)"
    ),
    "times(offsets=[0, 4])": (
        "csr_times: offsets must be at least 0 and at most Z with Z = 3 as in elements, got 4 at (1,)"
    ),
}
PROGRAM = """
import json, sys
import numpy as np
NAN, INF = float("nan"), float("inf")
side, calls, libraries = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
if side == "torch":
    import torch
    for library in libraries:
        torch.ops.load_library(library)
else:
    import onnxruntime
    from onnx import helper
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(library)

def run(op, inputs, **attributes):
    if side == "torch":
        name = {"GatherRows": "gather_rows", "BagSums": "bag_sums", "CsrTimes": "csr_times"}[op]
        tensor = lambda a: a if a is None else [*map(tensor, a)] if isinstance(a, list) else torch.from_numpy(a)
        return getattr(torch.ops.tied, name)(*map(tensor, inputs), **attributes).numpy()
    feeds, names = {}, []
    for i in (i for one in inputs for i in (one if isinstance(one, list) else [one])):
        names.append("" if i is None else f"i{len(names)}")
        if i is not None:
            feeds[names[-1]] = np.ascontiguousarray(i)
    node = helper.make_node(op, names, ["y"], domain=f"tied.{op}", **attributes)
    given = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), None) for k, a in feeds.items()]
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(f"tied.{op}", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]

def gather(x, index, every=1):
    x, index = np.array(x, np.float32).reshape(-1, 1), np.array(index, np.int64)[::every]
    assert (run("GatherRows", [x, index]) == x[index]).all()

def bags(x=((1.0, 2.0), (3.0, 4.0)), offsets=(0, 1), weight=None, codes=()):
    rows = np.array(x, np.float64).reshape(-1, 2)
    more = [np.array(code, np.uint8) for code in codes]
    weights = None if weight is None else np.array(weight, np.float64)
    inputs = [rows, np.array(offsets, np.int32), weights, *([more] if side == "torch" else more)]
    assert run("BagSums", inputs, limit=0.5).shape == (len(offsets), 2)

def times(offsets, columns=(2, 0, 1)):
    x, elements = np.array([1.0, 2.0, 4.0]), np.arange(1.0, len(columns) + 1)
    columns, offsets = np.array(columns, np.int64), np.array(offsets, np.int64)
    rows = [sum((elements * x[columns])[first:end]) for first, end in zip(offsets, offsets[1:])]
    assert run("CsrTimes", [x, elements, columns, offsets]).tolist() == rows

said = {}
for call in calls:
    try:
        eval(call)
        said[call] = ""
    except Exception as error:
        said[call] = repr(error) if isinstance(error, AssertionError) else str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with operators whose inputs are tied, verified."""
    return Project.verified("tied", tmp_path_factory.mktemp("tied"), "opsets=18")


def said(project: Project, side: str) -> dict[str, str]:
    paths = project.paths
    library = paths.torch_library if side == "torch" else paths.ort_library
    libraries = [library(name) for name in ("gather_rows", "bag_sums", "csr_times")]
    command = [sys.executable, "-c", PROGRAM, side, json.dumps([*CALLS]), *map(str, libraries)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("side", ["torch", "ort"])
def test_values_that_break_a_rule_have_a_message(project: Project, side: str) -> None:
    found = said(project, side)
    wrong = {call: text for call, text in found.items() if CALLS[call] not in text or bool(CALLS[call]) != bool(text)}
    assert wrong == {}


def test_drawn_inputs_obey(project: Project) -> None:
    """None of them is refused, and at least 30 shapes are drawn that no case has."""
    from opmatrix.search import drawn

    for name in ("gather_rows", "bag_sums", "permute_rows", "csr_times"):
        found = drawn.read(project.paths.drawn_inputs(name), name)
        assert sum(one.expected is None for one in found) == 0
        assert len({tuple(array.shape for array in one.arrays) for one in found}) > 40
