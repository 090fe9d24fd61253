"""float8 in every cell, and calls with other dtypes and values."""

from __future__ import annotations

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# Calls in torch, as Python, and their message.
CALLS = {
    "call('float8_e5m2', 'float8_e5m2')": "",
    "call('float8_e4m3fn', 'float8_e4m3fn', [0.0])": (
        "rescale: scale must be finite and at least 0.125, got 0 at (0,)"
    ),
    "call('float8_e5m2', 'float8_e5m2', [float('inf')])": "must be finite and at least 0.125, got inf at (0,)",
    "call('float8_e4m3fn', 'float8_e4m3fnuz')": "scale must be float8_e4m3fn as x is, got float8_e4m3fnuz",
    "call('float16', 'float16')": (
        "x must be float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz or float32, got float16"
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("float8", tmp_path_factory.mktemp("float8"), "opsets=9,18,21")


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = ("legacy-opset9", "legacy-opset18", "dynamo-opset18", "dynamo-opset21")
    assert found == {f"rescale-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def test_the_models_have_the_dtypes(project: Project) -> None:
    import onnx

    for model in project.paths.build.glob("export/rescale/custom/*/*/model.onnx"):
        proto = onnx.load(model)
        name = {"float32": "FLOAT"}.get(model.parent.name, model.parent.name.upper().replace("_", ""))
        types = [onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in proto.graph.output]
        assert types == [name, "FLOAT8E4M3FN", "FLOAT"]
        assert [n.op_type for n in proto.graph.node] == ["Rescale"]


@pytest.mark.parametrize("text", CALLS)
def test_calls_in_torch(project: Project, text: str) -> None:
    call = """
def call(x, scale, values=(0.5,)):
    x = torch.tensor([[1.0, 2.0]]).to(getattr(torch, x))
    return torch.ops.float8.rescale(x, torch.tensor(values).to(getattr(torch, scale)))
"""
    project.calls("rescale", f"{call}print({text})", CALLS[text])


@pytest.mark.deep
def test_sanitizers_find_nothing(project: Project) -> None:
    project.passes("sanitize:rescale")


@pytest.mark.deep
def test_a_wheel_with_float8_works(project: Project) -> None:
    project.passes("dist")
