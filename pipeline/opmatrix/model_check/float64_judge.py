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
import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.declaration.torch_signature import ONNX_DOMAINS
from opmatrix.errors import VerifyError
from opmatrix.model_check.one_node import for_reference, one_node
from opmatrix.model_check.run_model import PLAIN, compare_value
from opmatrix.model_check.type_text import format_type
from opmatrix.ort_checks.reference_evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import EXACT
from opmatrix.testdata.dtypes import float_limits, kind
from opmatrix.testdata.numpy_reference import FLOATS
from opmatrix.testdata.onnx_dataset import to_array

ORT, REFERENCE = "ONNX Runtime", "onnx.reference"
_DRAWS = 3  # evaluations with inputs that are moved in their last bits
_TIMES = 16  # of the largest change among them, by which a result may differ from float64: a sum adds them up


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`outcome` of ONNX Runtime's result: right or wrong according to float64, or unknown; "rounded" is right too, and
    so is onnx.reference's. `text`: the reason."""

    outcome: Literal["rounded", "right", "wrong", "unknown"]
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
    if any(actual[name].shape != expected[name].shape for name in actual):
        return Judgement(outcome="unknown", text=_inferred_shape(node, model, taken, actual, expected))
    if REFERENCE in truths and _is_rounding(node, model, taken, actual, expected, truths[REFERENCE], limits):
        return Judgement(outcome="rounded", text="they differ by no more than the rounding of the inputs explains")
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


def explained_by_rounding(
    model: ModelProto,
    taken: Mapping[str, Any],
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    limits: Mapping[str, Tolerance],
) -> bool:
    """Return whether a model of one standard node differs from expected outputs no more than the rounding of its inputs
    explains, and both from float64."""
    if len(model.graph.node) != 1 or model.graph.node[0].domain not in ONNX_DOMAINS:
        return False
    (node,) = model.graph.node
    values = {t.name: to_array(t) for t in model.graph.initializer} | dict(taken)
    inputs = {name: values[name] for name in node.input if name in values}
    both = [*actual.values(), *expected.values()]
    if not all(isinstance(value, np.ndarray) for value in both) or actual.keys() != expected.keys():
        return False
    if any(actual[name].shape != expected[name].shape for name in actual):
        return False
    try:
        wide = {name: _widened(value) for name, value in inputs.items()}
        truth = dict(zip(expected, _reference(node, model, wide, list(expected)), strict=True))
    except VerifyError:
        return False
    fits = all(truth[name].shape == want.shape for name, want in expected.items())
    return fits and _is_rounding(node, model, inputs, actual, expected, truth, limits)


def _is_rounding(
    node: NodeProto,
    model: ModelProto,
    taken: Mapping[str, Any],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    truth: Mapping[str, Array],
    limits: Mapping[str, Tolerance],
) -> bool:
    """Return whether both results differ from float64 by what the inputs' last bits change, as where terms cancel.

    The inputs are moved by half a unit in their last place, with random signs. The largest change of an output counts
    for all its elements: a kernel also rounds its own constants, which are 0 for some.
    """
    spread = dict.fromkeys(truth, 0.0)
    random = np.random.Generator(np.random.PCG64(0))
    for _ in range(_DRAWS):
        moved = {name: _moved(value, random) for name, value in taken.items()}
        try:
            values = _reference(node, model, moved, list(truth))
        except VerifyError:
            return False
        for (name, want), value in zip(truth.items(), values, strict=True):
            if value.shape != want.shape or kind(want.dtype) not in "fiub":
                return False
            with np.errstate(all="ignore"):
                change = np.abs(value.astype(np.float64) - want.astype(np.float64))
            spread[name] = max(spread[name], float(change[np.isfinite(change)].max(initial=0.0)))
    for found in (actual, expected):
        for name, want in truth.items():
            tolerance = limits.get(dtype_name(actual[name]), EXACT)
            with np.errstate(all="ignore"):
                a, b = found[name].astype(np.float64), want.astype(np.float64)
                allowed = tolerance.atol + tolerance.rtol * np.abs(b) + _TIMES * spread[name]
                same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed)
            if not same.all():
                return False
    return True


def _moved(value: Any, random: np.random.Generator) -> Any:
    """Return a floating array in float64, each element moved by half a unit in its last place."""
    wide = _widened(value)
    if not isinstance(value, np.ndarray) or dtype_name(value) not in FLOATS:
        return value
    half = float(float_limits(value.dtype).eps) / 2
    return wide * (1 + half * random.choice((-1.0, 1.0), value.shape))


def _inferred_shape(
    node: NodeProto,
    model: ModelProto,
    taken: Mapping[str, Any],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
) -> str:
    """Return both shapes of the first output in which they differ, and that which onnx infers."""
    name = next(name for name in actual if actual[name].shape != expected[name].shape)
    text = f"{ORT} returns the shape {actual[name].shape}, {REFERENCE} {expected[name].shape}"
    try:
        made = one_node(node, model, _typed(taken), [ValueInfoProto(name=name)])
        (output,) = onnx.shape_inference.infer_shapes(made).graph.output
    except (VerifyError, RuntimeError, ValueError):
        return text
    return f"{text}; onnx infers {format_type(output.type)}"


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
    made = one_node(node, model, _typed(wide), [ValueInfoProto(name=name) for name in outputs])
    return call(OrtSessions(None).sessions(made.SerializeToString(), settings=[PLAIN])[PLAIN], wide)


def _typed(values: Mapping[str, Any]) -> list[ValueInfoProto]:
    """Return the inputs of a model with these values. Raises VerifyError where one is no tensor."""
    if not all(isinstance(value, np.ndarray) for value in values.values()):
        raise VerifyError("an input is no tensor")
    return [
        helper.make_tensor_value_info(name, numpy_helper.from_array(value).data_type, value.shape)
        for name, value in values.items()
    ]


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
