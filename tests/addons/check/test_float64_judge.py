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
CELU = np.where(X > 0, X, np.expm1(X)).astype(np.float32)
INTEGERS = model("Add (x, x)", inputs="int64[N,3,4] x")


def test_an_error_of_onnx_runtime_is_found_by_two_implementations() -> None:
    found = judged(ADD, actual=0.25)
    assert found.outcome == "wrong"
    assert "ONNX Runtime and onnx.reference agree with each other in float64" in found.text
    assert "onnx.reference is nearer to float64 (largest errors: ONNX Runtime 0.25, onnx.reference 0)" in found.text


@pytest.mark.parametrize(
    ("found", "outcome", "text"),
    [
        (judged(ADD, expected=0.25), "right",
         "ONNX Runtime is nearer to float64 (largest errors: ONNX Runtime 0, onnx.reference 0.25)"),
        # ONNX Runtime has no kernel of Celu in float64, so nobody confirms onnx.reference.
        (judge(difference(model("Celu (x)"), X, {"y": CELU + np.float32(0.25)}, {"y": CELU})), "unknown",
         "only onnx.reference evaluates it in float64; onnx.reference is nearer to float64"),
        (judged(INTEGERS, actual=1, x=np.ones((1, 3, 4), np.int64)), "unknown",
         "it has no floating input to evaluate in float64"),
    ],
)  # fmt: skip
def test_one_implementation_alone_calls_no_node_wrong(found: Any, outcome: str, text: str) -> None:
    assert found.outcome == outcome and text in found.text


def explained(node: str, x: Any, actual: Any, expected: Any, constants: str = "") -> bool:
    outputs = ({"y": np.asarray(value)} for value in (actual, expected))
    return explained_by_rounding(model(node, constants=constants), {"x": x}, *outputs, LIMITS)


STEPS, QUARTERS = np.float32([2, 0.5, -1.25, 3.75]), np.float32([0.25, 0.75, 1, -3])
LARGE = np.float32([1e6, 0.1, -1e6, 2e6, -2e6])
QUANTIZED = np.uint8([10, 12, 12, 4])
HALF, SCALE = "float c = {0.5}", "float s = {0.5}, uint8 z = {10}"


@pytest.mark.parametrize(
    ("node", "x", "actual", "explains", "does_not", "constants"),
    [
        # An element that is next to a jump may be on either side of it; one that is not has one value.
        ("Floor (x)", STEPS, np.floor(STEPS), np.float32([1, 0, -2, 3]), np.ceil(STEPS), ""),
        ("Greater (x, c)", STEPS, STEPS > 0.5, STEPS >= 0.5, STEPS < 0.5, HALF),
        # A quantized value between two may be either.
        ("QuantizeLinear (x, s, z)", QUARTERS, QUANTIZED, np.uint8([11, 11, 12, 4]), QUANTIZED + np.uint8(1), SCALE),
        # Terms that cancel explain a difference of their size.
        ("ReduceSum <keepdims = 0> (x)", LARGE, np.float32(0.1), np.float32(0.125), np.float32(125), ""),
    ],
)
def test_one_jump_does_not_explain_other_elements(
    node: str, x: Any, actual: Any, explains: Any, does_not: Any, constants: str
) -> None:
    assert explained(node, x, actual, explains, constants)
    assert not explained(node, x, actual, does_not, constants)


def test_implementations_that_disagree_are_a_note_without_a_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected outputs are one. onnx.reference has an error here in declared dtypes, and none in float64."""
    evaluate = per_node.References.evaluate

    def wrong(*given: Any) -> Any:
        outputs, precision = evaluate(*given)
        return {name: value + value.dtype.type(1) for name, value in outputs.items()}, precision

    monkeypatch.setattr(per_node.References, "evaluate", wrong)
    (found,) = findings(ADD)
    assert (found.mark, found.question) == ("note", "agrees")
    assert found.text.startswith("implementations disagree at Add 'it': 24 of 24 elements differ")
    assert "ONNX Runtime agrees with onnx.reference and ONNX Runtime in float64; ONNX Runtime is nearer" in found.text
    x = np.ones((1, 3, 4), np.int64)
    assert [found.mark for found in findings(INTEGERS, x)] == ["note"]
    (found,) = findings(INTEGERS, x, differs=True)
    assert (found.mark, found.question) == ("wrong", "first node")
    assert "Add 'it': 12 of 12 elements differ" in found.text
