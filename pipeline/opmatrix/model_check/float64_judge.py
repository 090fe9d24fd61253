"""Judge a standard node on which ONNX Runtime and onnx.reference disagree, by evaluating it in float64. No torch.

Both implementations have faults, so neither alone decides that the other is wrong. Each evaluates the node once more,
with its floating inputs widened to float64. The result of ONNX Runtime is wrong if both results in float64 agree with
each other and not with it; else the implementations disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.errors import VerifyError
from opmatrix.model_check.one_node import for_reference, one_node
from opmatrix.model_check.run_model import PLAIN, compare_value
from opmatrix.ort_checks.reference_evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import kind
from opmatrix.testdata.numpy_reference import FLOATS

ORT, REFERENCE = "ONNX Runtime", "onnx.reference"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`outcome` of ONNX Runtime's result: right or wrong according to float64, or unknown. `text`: the reason."""

    outcome: Literal["right", "wrong", "unknown"]
    text: str


def judge(
    node: NodeProto,
    model: ModelProto,
    taken: Mapping[str, Any],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    limits: Mapping[str, Tolerance],
) -> Judgement:
    """Return the judgement on a node whose outputs are `actual` in ONNX Runtime and `expected` in onnx.reference."""
    wide = {name: _widened(value) for name, value in taken.items()}
    if all(wide[name] is value for name, value in taken.items()):
        return Judgement(outcome="unknown", text="it has no floating input to evaluate in float64")
    truths = _in_float64(node, model, wide, list(actual))
    nearest = {by: _nearer(actual, expected, truth) for by, truth in truths.items()}
    agreeing = [by for by, truth in truths.items() if _agree(actual, truth, actual, limits)]
    if agreeing:
        text = f"{ORT} agrees with {' and '.join(agreeing)} in float64; {nearest[agreeing[0]]}"
        return Judgement(outcome="right", text=text)
    if len(truths) == 2 and _agree(truths[ORT], truths[REFERENCE], actual, limits):
        text = f"{ORT} and {REFERENCE} agree with each other in float64; {nearest[REFERENCE]}"
        return Judgement(outcome="wrong", text=text)
    if not truths:
        return Judgement(outcome="unknown", text="neither evaluates it in float64")
    only = f"only {next(iter(truths))} evaluates it in float64" if len(truths) == 1 else "they disagree in float64 too"
    return Judgement(outcome="unknown", text=f"{only}; {'; '.join(nearest.values())}")


def _widened(value: Any) -> Any:
    if isinstance(value, np.ndarray) and dtype_name(value) in FLOATS and value.dtype != np.float64:
        return value.astype(np.float64)
    return value


def _in_float64(
    node: NodeProto, model: ModelProto, wide: Mapping[str, Any], outputs: Sequence[str]
) -> dict[str, dict[str, Array]]:
    """Return the outputs of each implementation that evaluates the node in float64."""
    found = {}
    for by, run in ((REFERENCE, _reference), (ORT, _ort)):
        try:
            values = dict(zip(outputs, run(node, model, wide, outputs), strict=True))
        except VerifyError:
            continue  # it has no kernel for float64, or a subgraph has constants of the declared dtype
        if all(isinstance(value, np.ndarray) for value in values.values()):
            found[by] = values
    return found


def _reference(node: NodeProto, model: ModelProto, wide: Mapping[str, Any], outputs: Sequence[str]) -> Sequence[Any]:
    return [np.asarray(v) for v in call(ReferenceRun(for_reference(node, model, [*wide], outputs), ()), wide)]


def _ort(node: NodeProto, model: ModelProto, wide: Mapping[str, Any], outputs: Sequence[str]) -> Sequence[Any]:
    if not all(isinstance(value, np.ndarray) for value in wide.values()):
        raise VerifyError("an input is no tensor")
    inputs = [
        helper.make_tensor_value_info(name, numpy_helper.from_array(value).data_type, value.shape)
        for name, value in wide.items()
    ]
    made = one_node(node, model, inputs, [ValueInfoProto(name=name) for name in outputs])
    return call(OrtSessions(None).sessions(made.SerializeToString(), settings=[PLAIN])[PLAIN], wide)


def _agree(
    found: Mapping[str, Any], truth: Mapping[str, Array], dtypes: Mapping[str, Array], limits: Mapping[str, Tolerance]
) -> bool:
    """Return whether two results agree in the dtypes that the node's outputs have."""
    with np.errstate(all="ignore"):
        return all(
            compare_value(name, found[name].astype(like.dtype), truth[name].astype(like.dtype), limits).ok
            for name, like in dtypes.items()
        )


def _nearer(actual: Mapping[str, Array], expected: Mapping[str, Array], truth: Mapping[str, Array]) -> str:
    """Return which implementation is nearer to the values in float64, and both errors."""
    errors = {ORT: _error(actual, truth), REFERENCE: _error(expected, truth)}
    nearer = min(errors, key=lambda name: errors[name])
    shown = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    equal = errors[ORT] == errors[REFERENCE]
    return f"{'both are as near' if equal else f'{nearer} is nearer'} to float64 (largest errors: {shown})"


def _error(found: Mapping[str, Any], truth: Mapping[str, Array]) -> float:
    """Return the largest absolute error, inf for another shape or where only one side is NaN or infinite."""
    worst = 0.0
    for name, want in truth.items():
        value = np.asarray(found[name])
        if value.shape != want.shape or kind(value.dtype) == "O":
            return float("inf")
        with np.errstate(all="ignore"):
            a, b = value.astype(np.float64), want.astype(np.float64)
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        worst = max(worst, float(np.where(np.isnan(error), np.inf, error).max(initial=0.0)))
    return worst
