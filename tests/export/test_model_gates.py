"""Each gate refuses its fault; its message names model, cell, what is allowed and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper
from onnx.shape_inference import InferenceContext

from opmatrix.basics.errors import ExportError
from opmatrix.basics.files import load_module
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.export.gates import check, nodes
from opmatrix.export.signature import ExpectedModel, ValueInfo, check_legal
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths

CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")
DTYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


@pytest.fixture(scope="module")
def operator(root: Path) -> Operator:
    return load_operator(Paths(root), "group_norm")


@pytest.fixture
def expected_model(operator: Operator, tmp_path: Path) -> ExpectedModel:
    """Expect the dynamic model: x is (N, C, H, W), epsilon 1e-3, domain version 2."""
    (tmp_path / "schema.py").write_text(python_modules.render(operator.spec)["schema.py"])
    schema = load_module(tmp_path / "schema.py", "schema").schema()
    model = next(m for m in operator.models if m.name == "dynamic_float32")
    return ExpectedModel(spec=operator.spec, model=model, lowering="custom", cell=CELL, schema=schema)


def value(info: ValueInfo) -> Any:
    return helper.make_tensor_value_info(info.name, DTYPES[info.dtype], list(info.shape))


def sound(expected_model: ExpectedModel) -> ModelProto:
    """Return a model without faults, as an exporter writes it."""
    signature = expected_model.signature
    node = helper.make_node(
        "mygroupnorm",
        [v.name for v in signature.inputs],
        [v.name for v in signature.outputs],
        domain="mydomain",
        epsilon=1e-3,
    )
    graph = helper.make_graph([node], "graph", list(map(value, signature.inputs)), list(map(value, signature.outputs)))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mydomain", 2)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_a_model_without_faults_passes_twice(expected_model: ExpectedModel) -> None:
    check(sound(expected_model), expected_model)
    check(sound(expected_model), expected_model)  # no schema stays registered


def test_ai_onnx_is_another_name_of_onnxs_own_domain(expected_model: ExpectedModel) -> None:
    expected_model = replace(
        expected_model, lowering="decomposed", lowered_nodes=(helper.make_node("Relu", ["x"], ["y"]),)
    )
    model = sound(expected_model)
    model.graph.node[0].CopyFrom(helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx"))
    assert not list(nodes(model, expected_model))


def an_extra_node(m: ModelProto) -> None:
    m.graph.node[0].output[0] = "inner"
    m.graph.node.append(helper.make_node("Identity", ["inner"], ["y"]))


def twice(m: ModelProto) -> None:
    m.graph.node.append(m.graph.node[0])


def a_stored_tensor(m: ModelProto) -> None:
    m.graph.initializer.append(helper.make_tensor("scale", TensorProto.FLOAT, [1], [1.0]))


def a_string(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(AttributeProto(name="epsilon", type=AttributeProto.STRING, s=b"0.001"))


def another_domain(m: ModelProto) -> None:
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def renamed(m: ModelProto) -> None:
    m.graph.input[0].name = m.graph.node[0].input[0] = "onnx::x_0"


def another_dtype(m: ModelProto) -> None:
    m.graph.input[2].type.tensor_type.elem_type = TensorProto.DOUBLE


def another_output_dtype(m: ModelProto) -> None:
    m.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def baked_in_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 4


def another_symbol(m: ModelProto) -> None:
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "s77"


def no_rank(m: ModelProto) -> None:
    m.graph.output[0].type.tensor_type.ClearField("shape")


def too_new(m: ModelProto) -> None:
    m.ir_version = 14


def a_path(m: ModelProto) -> None:
    m.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value="/home/me/model.py")


def an_external_file(m: ModelProto) -> None:
    a_stored_tensor(m)
    m.graph.initializer[0].data_location = TensorProto.EXTERNAL


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (an_extra_node, ["unexpected nodes Identity beside mydomain::mygroupnorm", "Take them out of the lowering"]),
        (twice, ["2 nodes mydomain::mygroupnorm, allowed: one"]),
        (a_stored_tensor, ["initializers or functions scale, allowed: none", "pass it as an input"]),
        (a_string, ["attribute 'epsilon' has the type STRING, declared: FLOAT"]),
        (another_domain, ["unexpected opset imports ['com.microsoft']"]),
        (renamed, ["inputs are named ['onnx::x_0', ", "input_names="]),
        (another_dtype, ["input 'scale' has the dtype float64, declared: float32", "onnx.checker refuses it"]),
        (another_output_dtype, ["output 'y' has the dtype float64, declared: float32", "shape inference fails"]),
        (baked_in_input, ["input 'x' has the shape ('N', 'C', 4, 'W')", "shape inference: output 'y' has the shape"]),
        (another_symbol, ["has the shape ('s77', 'C', 'H', 'W')", "the names in the model's 'dynamic'"]),
        (no_rank, ["output 'y' has the shape None", "The rank is lost", "setType"]),
        (too_new, ["IR version 14, allowed: 3 to 10"]),
        (a_path, ["metadata or a doc string with paths of this machine"]),
        (an_external_file, ["a tensor lies in an external file", "external_data=False"]),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)  # fmt: skip
def test_a_planted_fault_is_refused(
    fault: Callable[[ModelProto], None], expected: list[str], expected_model: ExpectedModel
) -> None:
    model = sound(expected_model)
    fault(model)
    with pytest.raises(ExportError) as caught:
        check(model, expected_model)
    message = str(caught.value)
    assert all(
        line.startswith("group_norm-custom-dynamic_float32@torch2.13-dynamo-opset18: ") for line in message.splitlines()
    )
    for text in expected:
        assert text in message


def test_a_schema_without_inference_loses_the_rank(expected_model: ExpectedModel) -> None:
    expected_model.schema.set_type_and_shape_inference_function(lambda context: None)
    with pytest.raises(ExportError, match="the ONNX schema needs an inference function"):
        check(sound(expected_model), expected_model)


def test_a_default_that_differs_from_torchs_is_refused(
    expected_model: ExpectedModel, operator: Operator, tmp_path: Path
) -> None:
    text = python_modules.render(operator.spec)["schema.py"]
    assert 'make_attribute("epsilon", 1e-5)' in text
    (tmp_path / "other.py").write_text(text.replace('("epsilon", 1e-5)', '("epsilon", 1e-6)'))
    other = replace(expected_model, schema=load_module(tmp_path / "other.py", "other").schema())
    with pytest.raises(
        ExportError, match=r"the ONNX schema has the default 9.99.*e-07 for attribute 'epsilon'"
    ) as caught:
        check(sound(expected_model), other)
    assert "declared: 9.99" in str(caught.value)
    assert str(caught.value).endswith("as in torch. Generate it again with: python -m opmatrix codegen group_norm")


def test_a_wrong_shape_rule_is_found_although_the_exporter_wrote_another_shape(expected_model: ExpectedModel) -> None:
    def shape_of_scale(context: InferenceContext) -> None:
        context.set_output_type(0, context.get_input_type(2))

    expected_model.schema.set_type_and_shape_inference_function(shape_of_scale)
    with pytest.raises(ExportError, match="shape inference"):
        check(sound(expected_model), expected_model)


@pytest.mark.parametrize(
    ("exporter", "opset", "expected"),
    [
        ("legacy", 21, "the legacy exporter of torch 2.13 writes opsets 7 to 20, not 21: the model would import"),
        ("dynamo", 17, "the dynamo exporter of torch 2.13 writes opsets 18 to 25, not 17. Choose a legal opset"),
        ("legacy", 8, "its minimum opset is 9; choose a higher opset, or lower min_opset in ops/group_norm/spec.py"),
    ],
)
def test_an_illegal_cell_is_refused(exporter: Any, opset: int, expected: str, operator: Operator) -> None:
    cell = Cell(torch="2.13", exporter=exporter, opset=opset, ort="1.31")
    with pytest.raises(ExportError, match=f"^group_norm@{cell.export_name}: ") as caught:
        check_legal(operator.spec, cell)
    assert expected in str(caught.value)
