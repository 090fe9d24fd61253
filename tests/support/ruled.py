"""A declaration with one input that has a rule, for unit tests."""

from __future__ import annotations

from typing import Any

from opmatrix.spec import Attribute, Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp, ValueRule

ATTRIBUTES = (
    Attribute(name="groups", kind="int", default=2),
    Attribute(name="limit", kind="float", default=0.5),
    Attribute(name="mode", kind="string", default="sum"),
)


def ruled(rule: ValueRule, *, type: str = "int64", **fields: Any) -> OpSpec:
    """Return an operator of x (N, C) and v (M, K), whose values have the rule."""
    given: dict[str, Any] = {
        "name": "tied",
        "summary": "Ties.",
        "torch": TorchOp(name="tied::tied"),
        "onnx": OnnxOp(domain="tied", op_type="Tied"),
        "types": {"T": ("float32", "float64"), "I": ("uint8", "int32")},
        "inputs": (
            Input(name="x", type="T", dims=("N", "C")),
            Input(name="i", type="I", dims=("N",)),
            Input(name="v", type=type, dims=("M", "K"), values=rule),
        ),
        "attributes": ATTRIBUTES,
        "outputs": (Output(name="y", type="T", shape=Dims(dims=("M", "C"))),),
        "tolerances": {"custom": dict.fromkeys(("float32", "float64"), Tolerance(rtol=0.0, atol=0.0))},
    }
    return OpSpec(**(given | fields))
