"""float16 and bfloat16 in every cell, and calls with other dtypes and values."""

from __future__ import annotations

import json

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# Calls in torch and in ONNX Runtime, as Python, and their message.
CALLS = {
    "call('float16', 'float16')": "",
    "call('bfloat16', 'bfloat16', [0.5, -1.0])": "weighted_sum: weights must be finite and at least 0, got -1 at (1,)",
    "call('float16', 'float16', [65504.0, float('inf')])": (
        "weighted_sum: weights must be finite and at least 0, got inf at (1,)"
    ),
    "call('float16', 'bfloat16')": "weights must be float16 as x is, got bfloat16",
    "call('float64', 'float64')": "weighted_sum: x must be float16, bfloat16 or float32, got float64",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("halves", tmp_path_factory.mktemp("halves"), "opsets=9,18")


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = ("legacy-opset9", "legacy-opset18", "dynamo-opset18")
    assert found == {f"weighted_sum-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def test_the_models_have_the_dtypes(project: Project) -> None:
    import onnx

    for model in project.paths.build.glob("export/weighted_sum/custom/*/*/model.onnx"):
        proto = onnx.load(model)
        types = [onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in proto.graph.input]
        assert types == [{"float32": "FLOAT"}.get(model.parent.name, model.parent.name.upper())] * 2
        assert [n.op_type for n in proto.graph.node] == ["WeightedSum"]


def test_gradients_are_compared_in_each_dtype(project: Project) -> None:
    (record,) = project.paths.build.glob("register/weighted_sum/gradient*.json")
    text = json.dumps(json.loads(record.read_text()))
    assert all(dtype in text for dtype in ("float16", "bfloat16", "float32"))


@pytest.mark.parametrize("text", CALLS)
def test_calls_in_torch(project: Project, text: str) -> None:
    call = """
def call(x, weights, values=(0.5, 1.0)):
    x = torch.tensor([[1.0, 2.0]], dtype=getattr(torch, x))
    return torch.ops.halves.weighted_sum(x, torch.tensor(values, dtype=getattr(torch, weights)))
"""
    project.calls("weighted_sum", f"{call}print({text})", CALLS[text])


@pytest.mark.deep
def test_a_wheel_with_both_dtypes_works(project: Project) -> None:
    project.passes("dist")


@pytest.mark.deep
def test_sanitizers_find_nothing(project: Project) -> None:
    project.passes("sanitize:weighted_sum")
