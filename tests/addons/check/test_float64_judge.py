"""A standard node is wrong only if two implementations say so: faults are planted in the values of each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser

from opmatrix.addons.check import compare, per_node
from opmatrix.addons.check.float64_judge import Difference, explained_by_rounding, judge
from opmatrix.addons.check.inputs import tolerances
from opmatrix.addons.check.per_node import compare_nodes
from opmatrix.basics.finding import Finding
from opmatrix.ort_checks.sessions import OrtSessions

pytestmark = pytest.mark.ort

LIMITS = tolerances(None, None)
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def model(node: str, *, opset: int = 18, inputs: str = "float[N,3,4] x", constants: str = "") -> ModelProto:
    output = f"{inputs.partition('[')[0]}[] y"
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => ({output}) <{constants}>'
    return parser.parse_model(f"{head} {{ [it] y = {node} }}")


def findings(made: ModelProto, x: Any = X, *, differs: bool = False) -> list[Finding]:
    nodes = list(compare_nodes(made, {"x": x}, OrtSessions(None), [], LIMITS))
    return list(compare.first_wrong_findings(nodes, [], differs=differs))


@pytest.mark.parametrize("opset", [7, 9, 13, 15])
def test_batch_normalization_of_one_output_is_inference(opset: int) -> None:
    """onnx.reference computes training up to opset 13; ONNX Runtime is right."""
    constants = "float[3] s = {1, 2, 3}, float[3] b = {0, 1, 2}, float[3] m = {1, 0, 4}, float[3] v = {1, 9, 2}"
    node = "BatchNormalization <epsilon = 1e-3> (x, s, b, m, v)"
    (found,) = findings(model(node, opset=opset, constants=constants))
    assert (found.mark, found.question) == ("ok", "agrees")


def difference(made: ModelProto, x: Any, actual: Any, expected: Any) -> Difference:
    return Difference(
        node=made.graph.node[0], model=made, taken={"x": x}, actual=actual, expected=expected, limits=LIMITS
    )


def judged(made: ModelProto, *, actual: Any = 0, expected: Any = 0, x: Any = X) -> Any:
    """Return the judgement on a node whose right output is x + x, plus an error of each implementation."""
    right = x + x
    values = {"y": (right + actual).astype(x.dtype)}, {"y": (right + expected).astype(x.dtype)}
    return judge(difference(made, x, *values))


ADD = model("Add (x, x)")
INTEGERS = model("Add (x, x)", inputs="int64[N,3,4] x")


def test_an_error_of_onnx_runtime_is_found_by_two_implementations() -> None:
    found = judged(ADD, actual=0.25)
    assert found.outcome == "wrong"
    assert "ONNX Runtime and onnx.reference agree with each other in float64" in found.text
    assert "onnx.reference is nearer to float64 (largest errors: ONNX Runtime 0.25, onnx.reference 0)" in found.text


def test_an_error_of_onnx_reference_does_not_blame_onnx_runtime() -> None:
    found = judged(ADD, expected=0.25)
    assert found.outcome == "right"
    assert "ONNX Runtime is nearer to float64 (largest errors: ONNX Runtime 0, onnx.reference 0.25)" in found.text


def test_one_implementation_alone_calls_no_node_wrong() -> None:
    """ONNX Runtime has no kernel of Celu in float64, so nobody confirms onnx.reference."""
    right = np.where(X > 0, X, np.expm1(X)).astype(np.float32)
    found = judge(difference(model("Celu (x)"), X, {"y": right + np.float32(0.25)}, {"y": right}))
    assert found.outcome == "unknown"
    assert found.text.startswith("only onnx.reference evaluates it in float64; onnx.reference is nearer to float64")


def test_an_integer_node_is_undecided_unless_the_outputs_differ() -> None:
    found = judged(INTEGERS, actual=1, x=np.ones((1, 3, 4), np.int64))
    assert found.outcome == "unknown"
    assert found.text == "it has no floating input to evaluate in float64"


def explained(node: str, x: Any, actual: Any, expected: Any, constants: str = "") -> bool:
    outputs = ({"y": np.asarray(value)} for value in (actual, expected))
    return explained_by_rounding(model(node, constants=constants), {"x": x}, *outputs, LIMITS)


def test_one_jump_does_not_explain_other_elements() -> None:
    """An element that is next to a jump may be on either side of it; one that is not has one value."""
    x = np.float32([2, 0.5, -1.25, 3.75])
    assert explained("Floor (x)", x, np.floor(x), np.float32([1, 0, -2, 3]))
    assert not explained("Floor (x)", x, np.floor(x), np.ceil(x))
    half = "float c = {0.5}"
    assert explained("Greater (x, c)", x, x > 0.5, x >= 0.5, half)
    assert not explained("Greater (x, c)", x, x > 0.5, x < 0.5, half)


def test_a_quantized_value_between_two_may_be_either() -> None:
    node, constants = "QuantizeLinear (x, s, z)", "float s = {0.5}, uint8 z = {10}"
    x = np.float32([0.25, 0.75, 1, -3])
    right = np.uint8([10, 12, 12, 4])
    assert explained(node, x, right, np.uint8([11, 11, 12, 4]), constants)
    assert not explained(node, x, right, right + np.uint8(1), constants)


def test_terms_that_cancel_explain_a_difference_of_their_size() -> None:
    node = "ReduceSum <keepdims = 0> (x)"
    x = np.float32([1e6, 0.1, -1e6, 2e6, -2e6])
    assert explained(node, x, np.float32(0.125), np.float32(0.1))
    assert not explained(node, x, np.float32(125), np.float32(0.1))


@pytest.fixture
def off_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give onnx.reference an error of 0.5 in declared dtypes, and none in float64."""
    evaluate = per_node.References.evaluate

    def wrong(*given: Any) -> Any:
        outputs, precision = evaluate(*given)
        return {name: value + value.dtype.type(1) for name, value in outputs.items()}, precision

    monkeypatch.setattr(per_node.References, "evaluate", wrong)


@pytest.mark.usefixtures("off_reference")
def test_implementations_that_disagree_are_a_note() -> None:
    (found,) = findings(ADD)
    assert (found.mark, found.question) == ("note", "agrees")
    assert found.text.startswith("implementations disagree at Add 'it': 24 of 24 elements differ")
    assert "ONNX Runtime agrees with onnx.reference and ONNX Runtime in float64; ONNX Runtime is nearer" in found.text


@pytest.mark.usefixtures("off_reference")
def test_the_expected_outputs_are_a_second_opinion() -> None:
    x = np.ones((1, 3, 4), np.int64)
    (found,) = findings(INTEGERS, x)
    assert found.mark == "note"
    (found,) = findings(INTEGERS, x, differs=True)
    assert (found.mark, found.question) == ("wrong", "first node")
    assert "Add 'it': 12 of 12 elements differ" in found.text
