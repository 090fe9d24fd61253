"""Judge a standard node on which ONNX Runtime and onnx.reference disagree, by evaluating it in float64. No torch.

Both implementations have faults, so neither alone decides that the other is wrong. Each evaluates the node once more,
with its floating inputs widened to float64. The result of ONNX Runtime is wrong if both results in float64 agree with
each other and not with it; else the implementations disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto

from opmatrix.addons.check.graph_walk import for_reference, format_type, model_of, typed
from opmatrix.addons.check.repair import is_external
from opmatrix.addons.check.run_model import PLAIN, compare_value
from opmatrix.basics.errors import VerifyError
from opmatrix.data.arrays import Array, dtype_name, float_limits, kind
from opmatrix.data.compare import EXACT
from opmatrix.data.dataset import to_array
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.project.dtypes import FLOATS
from opmatrix.signature.signature import ONNX_DOMAINS
from opmatrix.spec import Tolerance

ORT, REFERENCE = "ONNX Runtime", "onnx.reference"
_DRAWS = 3  # evaluations with inputs that are moved in their last bits
_TIMES = 16  # of the largest change among them, by which a result may differ from float64: a sum adds them up
_LESS = 16  # times smaller moves, by which steady changes become that much smaller, and jumps do not


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`outcome` of ONNX Runtime's result: right or wrong according to float64, or unknown; "rounded" is right too, and
    so is onnx.reference's. `text`: the reason."""

    outcome: Literal["rounded", "right", "wrong", "unknown"]
    text: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A node of a model, its inputs `taken`, and its outputs: `actual` in ONNX Runtime and `expected` elsewhere."""

    node: NodeProto
    model: ModelProto
    taken: Mapping[str, Any]
    actual: Mapping[str, Array]
    expected: Mapping[str, Array]
    limits: Mapping[str, Tolerance]


def judge(difference: Difference) -> Judgement:
    """Return the judgement on a node whose `expected` outputs are those of onnx.reference."""
    taken, actual, expected = difference.taken, difference.actual, difference.expected
    if any(kind(value.dtype) not in "fiub" for value in (*actual.values(), *expected.values())):
        if _same_numbers(difference):
            return Judgement(outcome="rounded", text="they write the same numbers with other digits")
        return Judgement(outcome="unknown", text="its outputs are no numbers to evaluate in float64")
    wide = {name: _widened(value) for name, value in taken.items()}
    if all(wide[name] is value for name, value in taken.items()):
        return Judgement(outcome="unknown", text="it has no floating input to evaluate in float64")
    truths = _in_float64(difference, wide)
    if any(actual[name].shape != expected[name].shape for name in actual):
        return Judgement(outcome="unknown", text=_inferred_shape(difference))
    if REFERENCE in truths and _is_rounding(difference, truths[REFERENCE]):
        return Judgement(outcome="rounded", text="they differ by no more than the rounding of the inputs explains")
    nearest = {by: _nearer(actual, expected, truth) for by, truth in truths.items()}
    agreeing = [by for by, truth in truths.items() if _agree(difference, actual, truth)]
    if agreeing:
        text = f"{ORT} agrees with {' and '.join(agreeing)} in float64; {nearest[agreeing[0]]}"
        return Judgement(outcome="right", text=text)
    if len(truths) == 2 and _agree(difference, truths[ORT], truths[REFERENCE]):
        text = f"{ORT} and {REFERENCE} agree with each other in float64; {nearest[REFERENCE]}"
        return Judgement(outcome="wrong", text=text)
    if not truths:
        return Judgement(outcome="unknown", text="neither evaluates it in float64")
    only = f"only {next(iter(truths))} evaluates it in float64" if len(truths) == 1 else "they disagree in float64 too"
    return Judgement(outcome="unknown", text=f"{only}; {'; '.join(nearest.values())}")


def _same_numbers(difference: Difference) -> bool:
    """Return whether all strings are numbers, as of a Cast, and agree within the tolerance of the floats taken."""
    dtypes = [dtype_name(value) for value in difference.taken.values() if _is_floating(value)]
    try:
        both = [{n: a.astype(np.float64) for n, a in of.items()} for of in (difference.actual, difference.expected)]
    except ValueError:  # a string that is no number
        return False
    limits = {"float64": difference.limits[dtypes[0]]} if dtypes else {}
    return all(compare_value(name, value, both[1][name], limits).ok for name, value in both[0].items())


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
    if any(is_external(tensor) for tensor in model.graph.initializer):  # the model was read without them
        return False
    (node,) = model.graph.node
    values = {t.name: to_array(t) for t in model.graph.initializer} | dict(taken)
    inputs = {name: values[name] for name in node.input if name in values}
    both = [*actual.values(), *expected.values()]
    if not all(isinstance(value, np.ndarray) for value in both) or actual.keys() != expected.keys():
        return False
    if any(actual[name].shape != expected[name].shape for name in actual):
        return False
    found = Difference(node=node, model=model, taken=inputs, actual=actual, expected=expected, limits=limits)
    try:
        wide = {name: _widened(value) for name, value in inputs.items()}
        truth = dict(zip(expected, _reference(found, wide, list(expected)), strict=True))
    except VerifyError:
        return False
    fits = all(truth[name].shape == want.shape for name, want in expected.items())
    return fits and _is_rounding(found, truth)


def _is_rounding(difference: Difference, truth: Mapping[str, Array]) -> bool:
    """Return whether both results differ from float64 by what the inputs' last bits change, as where terms cancel.

    The inputs are moved by half a unit in their last place, with random signs, and less with the same signs. Where an
    output changes steadily, by less after a smaller move, the largest change counts for all its elements: a kernel also
    rounds its own constants, which are 0 for some. Where it jumps, as those of Floor and Greater do, an element may
    have any value that it takes after a move, and no other.
    """
    random = np.random.Generator(np.random.PCG64(0))
    signs = [{n: random.choice((-1.0, 1.0), np.shape(v)) for n, v in difference.taken.items()} for _ in range(_DRAWS)]
    outputs = list(truth)
    try:
        far, near = (
            [_after_move(difference, signs=one, times=times, outputs=outputs) for one in signs]
            for times in (1, 1 / _LESS)
        )
        spread = {name: _spread(truth[name], [run[name] for run in far]) for name in truth}
        less = {name: _spread(truth[name], [run[name] for run in near]) for name in truth}
        jumping = [name for name in truth if not _is_steady(truth[name], spread[name], less[name])]
        further = [_after_move(difference, signs=one, outputs=outputs) for one in _same_signs(difference) if jumping]
    except (VerifyError, _OtherFormError):
        return False
    for values in (difference.actual, difference.expected):
        for name, want in truth.items():
            low, high = _wide_float(want), _wide_float(want)
            allowed = _TIMES * spread[name]
            if name in jumping:
                moved = [low, *(_wide_float(run[name]) for run in (*far, *near, *further))]
                low, high, allowed = np.fmin.reduce(moved), np.fmax.reduce(moved), 0.0
            tolerance = difference.limits.get(dtype_name(difference.actual[name]), EXACT)
            with np.errstate(all="ignore"):
                a, b = _wide_float(values[name]), _wide_float(want)
                limit = tolerance.atol + tolerance.rtol * np.abs(b) + allowed
                same = (a == b) | (np.isnan(a) & np.isnan(b)) | ((low - limit <= a) & (a <= high + limit))
            if not same.all():
                return False
    return True


class _OtherFormError(Exception):
    """After a move, an output has another shape, or is not a tensor of numbers."""


def _after_move(
    difference: Difference, *, signs: Mapping[str, Any], outputs: Sequence[str], times: float = 1
) -> dict[str, Array]:
    """Return the outputs of onnx.reference after a move. Raises VerifyError or _OtherFormError."""
    moved = {name: _moved(value, signs[name] * times) for name, value in difference.taken.items()}
    values = dict(zip(outputs, _reference(difference, moved, outputs), strict=True))
    if any(v.shape != difference.actual[n].shape or kind(v.dtype) not in "fiub" for n, v in values.items()):
        raise _OtherFormError
    return values


def _same_signs(difference: Difference) -> Iterator[dict[str, float]]:
    """Yield a sign for each input: among all of up to three inputs, each jump that a move can cause is there."""
    moving = [name for name, value in difference.taken.items() if _is_floating(value)]
    rest = dict.fromkeys(difference.taken, 1.0)
    yield from (
        rest | dict(zip(moving, signs, strict=False)) for signs in product((-1.0, 1.0), repeat=min(len(moving), 3))
    )


def _spread(want: Array, runs: Sequence[Array]) -> float:
    with np.errstate(all="ignore"):
        changes = [np.abs(_wide_float(run) - _wide_float(want)) for run in runs]
    return max(float(change[np.isfinite(change)].max(initial=0.0)) for change in changes)


def _is_steady(want: Array, spread: float, less: float) -> bool:
    """Return whether an output changes by less after a smaller move. Steps of 1/16 leave 1/16, or 1/4 of a root."""
    return kind(want.dtype) == "f" and (spread == 0 or 2 * less < spread < 8 * _LESS * less)


def _wide_float(array: Array) -> Array:
    return array.astype(np.float64)


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and dtype_name(value) in FLOATS


def _moved(value: Any, signs: Any) -> Any:
    """Return a floating array in float64, each element moved by half a unit in its last place times its sign."""
    if not _is_floating(value):
        return value
    return _widened(value) * (1 + float(float_limits(value.dtype).eps) / 2 * signs)


def _inferred_shape(difference: Difference) -> str:
    """Return both shapes of the first output in which they differ, and that which onnx infers."""
    actual, expected = difference.actual, difference.expected
    name = next(name for name in actual if actual[name].shape != expected[name].shape)
    text = f"{ORT} returns the shape {actual[name].shape}, {REFERENCE} {expected[name].shape}"
    try:
        made = model_of([difference.node], difference.model, typed(difference.taken), [ValueInfoProto(name=name)])
        (output,) = onnx.shape_inference.infer_shapes(made).graph.output
    except (VerifyError, RuntimeError, ValueError):
        return text
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in output.type.tensor_type.shape.dim]
    two = f", as {ORT}: two of three agree" if sizes == [*actual[name].shape] else ""
    return f"{text}; onnx infers {format_type(output.type)}{two}"


def _widened(value: Any) -> Any:
    return value.astype(np.float64) if _is_floating(value) and value.dtype != np.float64 else value


def _in_float64(difference: Difference, wide: Mapping[str, Any]) -> dict[str, dict[str, Array]]:
    """Return the outputs of each implementation that evaluates the node in float64."""
    outputs = {}
    for by, run in ((REFERENCE, _reference), (ORT, _ort)):
        try:
            values = dict(zip(difference.actual, run(difference, wide, list(difference.actual)), strict=True))
        except VerifyError:
            continue  # it has no kernel for float64, or a subgraph has constants of the declared dtype
        if all(isinstance(value, np.ndarray) for value in values.values()):
            outputs[by] = values
    return outputs


def _reference(difference: Difference, taken: Mapping[str, Any], outputs: Sequence[str]) -> Sequence[Any]:
    model = for_reference(difference.node, difference.model, [*taken], outputs)
    return [np.asarray(value) for value in call(ReferenceRun(model, ()), taken)]


def _ort(difference: Difference, taken: Mapping[str, Any], outputs: Sequence[str]) -> Sequence[Any]:
    infos = [ValueInfoProto(name=name) for name in outputs]
    made = model_of([difference.node], difference.model, typed(taken), infos)
    return call(OrtSessions(None).sessions(made.SerializeToString(), settings=[PLAIN])[PLAIN], taken)


def _agree(difference: Difference, values: Mapping[str, Any], truth: Mapping[str, Array]) -> bool:
    """Return whether two results agree in the dtypes that the node's outputs have."""
    with np.errstate(all="ignore"):
        return all(
            compare_value(name, values[name].astype(of.dtype), truth[name].astype(of.dtype), difference.limits).ok
            for name, of in difference.actual.items()
        )


def _nearer(actual: Mapping[str, Array], expected: Mapping[str, Array], truth: Mapping[str, Array]) -> str:
    """Return which implementation is nearer to the values in float64, and both errors."""
    errors = {ORT: _error(actual, truth), REFERENCE: _error(expected, truth)}
    nearer = min(errors, key=lambda name: errors[name])
    shown = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    equal = errors[ORT] == errors[REFERENCE]
    return f"{'both are as near' if equal else f'{nearer} is nearer'} to float64 (largest errors: {shown})"


def _error(values: Mapping[str, Any], truth: Mapping[str, Array]) -> float:
    """Return the largest absolute error, inf for another shape or where only one side is NaN or infinite."""
    worst = 0.0
    for name, want in truth.items():
        value = np.asarray(values[name])
        if value.shape != want.shape or kind(value.dtype) == "O":
            return float("inf")
        with np.errstate(all="ignore"):
            a, b = value.astype(np.float64), want.astype(np.float64)
            error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        worst = max(worst, float(np.where(np.isnan(error), np.inf, error).max(initial=0.0)))
    return worst
