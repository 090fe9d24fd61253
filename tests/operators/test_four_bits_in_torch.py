"""Operators whose tensors are int8 and uint8 in torch, and int4 and uint4 in the ONNX node (`onnx_type`).

tests/projects/four_bits_in_torch: a required, an optional and a variadic input, outputs of a declared size and of one
that the kernel decides. ONNX Runtime's own Cast makes the numbers of four bits, and takes them back.
tests/faults/four_bits_in_torch.toml has the faults.
"""

from __future__ import annotations

import pytest

from tests.support.projects import ROOT, Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

FOUR_BITS = ROOT / "tests/projects/four_bits_in_torch"
OPERATORS = sorted(path.name for path in (FOUR_BITS / "ops").iterdir())
MODEL = "build/export/{}/custom/torch2.13-dynamo-opset21/{}/model.onnx"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project, in which `doit` has run."""
    made = Project.of("four_bits_in_torch", tmp_path_factory.mktemp("four_bits_in_torch"))
    done = made.passes("opsets=20,21")
    assert "legacy: torch's legacy exporter writes no opset from 21 on, where Cast takes int4" in done.stdout
    return made


def test_every_gate_passes(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    assert found == {f"{name}-custom@torch2.13-dynamo-opset21-ort1.31": "verified" for name in OPERATORS}


def test_the_model_casts_at_the_edges_of_the_node(project: Project) -> None:
    import onnx
    from onnx import TensorProto

    proto = onnx.load(project.root / MODEL.format("requantize", "dynamic"))
    assert [n.op_type for n in proto.graph.node] == ["Cast", "Cast", "Requantize", "Cast", "Cast"]
    types = [v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)]
    assert types == [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT, TensorProto.UINT8]
    inner = {v.name: v.type.tensor_type.elem_type for v in proto.graph.value_info}
    assert {inner[name] for name in proto.graph.node[2].input} == {TensorProto.INT4, TensorProto.UINT4}


@pytest.mark.parametrize(("name", "model"), [("requantize", "dynamic"), ("join_codes", "two")])
def test_a_model_is_checked_node_by_node(project: Project, name: str, model: str) -> None:
    done = project.doit("check", MODEL.format(name, model))
    assert done.returncode == 0 and "node by node: 1 node" in done.stdout, done.stdout + done.stderr


@pytest.mark.deep
def test_drawn_inputs_and_forbidden_calls_of_the_sanitizers(project: Project) -> None:
    for name in OPERATORS:  # compiled by the fixture
        done = project.stage("ort-fuzz", name)
        assert done.returncode == 0, done.stdout + done.stderr


# Calls in torch, as Python, and their message.
CALLS = {
    "op(w([[-8, 7]]), None)": "",
    "op(w([[-9, 7]]), None)": "requantize: w must be at least -8 and at most 7, got -9 at (0, 0)",
    "op(w([[1, 2], [3, 100]]), None)": "requantize: w must be at least -8 and at most 7, got 100 at (1, 1)",
    "op(w([[1]]), w([16]).to(torch.uint8))": "requantize: offset must be at most 15, got 16 at (0,)",
    "op(w([[1]]).float(), None)": "requantize: w must be int8, got float32",
}


@pytest.mark.parametrize("text", CALLS)
def test_calls_in_torch(project: Project, text: str) -> None:
    names = "op, w = torch.ops.four_bits.requantize, lambda values: torch.tensor(values, dtype=torch.int8)"
    project.calls("requantize", f"{names}\nprint({text})", CALLS[text])


@pytest.mark.deep
def test_the_wheel_works_and_a_version_is_published(project: Project) -> None:
    project.passes("dist")
    done = project.stage("publish", "requantize")
    assert done.returncode == 0, done.stdout + done.stderr
    project.passes("opsets=21", "verify:requantize-custom@*")
    verdict = project.paths.build / "verify/requantize/custom/torch2.13-dynamo-opset21-ort1.31.json"
    assert "published_1" in verdict.read_text()
