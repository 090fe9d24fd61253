"""The "runs" and "agrees" findings: run a model in ONNX Runtime, optimised and not, and compare; explain why it refuses
a standard node. No torch."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.addons.check.functions import function_name, onnx_schemas
from opmatrix.addons.check.graph_walk import domain_of, format_type, format_value, node_label, nodes, opsets
from opmatrix.addons.check.inputs import ModelInputs
from opmatrix.addons.check.parts import seconds_left
from opmatrix.addons.check.sizes import Try, output_findings, size_findings
from opmatrix.basics import finding
from opmatrix.basics.errors import many, one_line
from opmatrix.basics.finding import OPTIMIZER, Finding
from opmatrix.data.arrays import dtype_name
from opmatrix.data.compare import EXACT, Comparison, compare
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call
from opmatrix.signature.signature import ONNX_DOMAINS
from opmatrix.spec import Tolerance

# A version after which ONNX Runtime's table of kernels has no end.
_LAST = 2**30
_MISSING = (
    r"(?:Could not find an implementation|Failed to find kernel) for (\w+)\((\d+)\)(?: node with name '([^']*)')?"
)
_UNKNOWN = r"(\w+)\(-?\d+\) is not a registered function/op|No Op registered for (\w+) with domain_version"
_BOUND = (
    r"Type parameter \((\w+)\) of Optype \((\w+)\) bound to different types "
    r"\(tensor\((\w+)\) and tensor\((\w+)\) in node \(([^)]*)\)"
)
_TYPE = r"Type '([^']+)' of input parameter \(([^)]*)\) of operator \((\w+)\) in node \(([^)]*)\) is invalid"
_INTERFACE = r"No corresponding Numpy type for Tensor Type\. (\w+)|Numpy_type \d+ can't be converted to MLDataType"
_IMPORT = r"No opset import for domain '([^']*)'"
_LOCALE = r"Failed to construct locale with name:([\w.-]+)"
_UNSUPPORTED = r"(?i)[^.:]*\b(?:not|un)\s?(?:yet |currently )?(?:supported|implemented)\b[^.]*"
_ELSEWHERE = "The model may be right. Replace the node by others, or run the model in another runtime"


OPTIMISED, PLAIN = "optimised", "not optimised"  # settings of opmatrix.ort_checks.sessions
Answers = Mapping[str, Sequence[Any]]
_FOR_SIZES = 1 / 4  # of the time of a model
_SLOW = "no further sizes are tried, because a run takes too much of the model's time; --seconds gives it more"
_DRAWN = "They are random: give their shapes with --shape, or inputs that it can compute with: --inputs FILE.npz"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Inputs and the outputs by setting; `broken`: why the optimised graph has none, although the other one has."""

    fed: ModelInputs
    answers: Answers
    broken: str = ""

    @property
    def outputs(self) -> Sequence[Any]:
        """Those of the graph as it is, where ONNX Runtime takes it so."""
        return self.answers[PLAIN if PLAIN in self.answers else OPTIMISED]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The finding of the runs, and each run; `missing`: ONNX Runtime lacks a kernel. `sizes`: the findings on open
    sizes. `refused`: the inputs with which it fails for a reason that is not explained, None for any."""

    finding: Finding
    sizes: Sequence[Finding] = ()
    done: Sequence[Run] = ()
    missing: bool = False
    refused: ModelInputs | None = None

    @property
    def ok(self) -> bool:
        return self.finding.mark == "ok"


def _wrong(text: str, remedy: str = "") -> Runs:
    return Runs(finding=finding.wrong("runs", text, remedy))


def _lacks(text: str, remedy: str = "") -> Runs:
    """Return that the model is valid, and ONNX Runtime does not implement a node of it."""
    return Runs(finding=finding.wrong("runs", text, remedy), missing=True)


def explain(model: ModelProto, error: str) -> Runs | None:
    """Return the explanation of an error about a node in one of ONNX's domains; None for any other error."""
    version = f"ONNX Runtime {onnxruntime.__version__}"
    if found := re.search(_MISSING, error):
        return _missing(model, found[1], int(found[2]), found[3] or "", version)
    if found := re.search(_UNKNOWN, error):
        return _unknown(model, found[1] or found[2], version)
    if (found := re.search(_BOUND, error)) and (node := _node(model, found[2], found[5])):
        text = f"the inputs of {node_label(node)} must have one dtype, and have {found[3]} and {found[4]}"
        return _wrong(text, "Cast one of them in the model")
    if (found := re.search(_TYPE, error)) and (node := _node(model, found[3], found[4])):
        text = f"{node_label(node)} takes no {found[1]} as {found[2]!r} in opset {opsets(model).get('', 0)}"
        return _wrong(text, "Cast it in the model, or export at a newer opset")
    if found := re.search(_INTERFACE, error):
        dtype = f"the dtype {found[1]}" if found[1] else "the dtype of an input"
        return _lacks(f"the Python interface of {version} does not have {dtype}")
    if "codec can't decode byte" in error:
        text = f"{version} computes a string that is not UTF-8, which its Python interface does not return"
        return _lacks(text, "Its interfaces for C and C++ do")
    if (found := re.search(_IMPORT, error)) and (by := [f for f in model.functions if found[1] in opsets(f)]):
        text = f"{version} wants the model to import {found[1]!r}, which its function {function_name(by[0])} imports"
        imported = f"add it to the imports of the model, too: version {opsets(by[0])[found[1]]}"
        return _lacks(text, f"The model may be right. For ONNX Runtime, {imported}")
    if found := re.search(_LOCALE, error):
        text = f"this machine has no locale {found[1]}, which a StringNormalizer needs"
        return _lacks(text, f"Install it, such as with: locale-gen {found[1]}")
    if "onnxruntime::" in error and (found := re.search(_UNSUPPORTED, error)):  # not of a custom kernel
        return _lacks(f"{version}: {one_line(found[0])}", _ELSEWHERE)
    return None


def failing_node(model: ModelProto, error: str) -> str:
    """Return the label of the node at which a run fails, "" where the error does not tell it among several."""
    if not (found := re.search(r"while running (\w+) node\. Name:'([^']*)'", error)):
        return ""
    same = [node for node in nodes(model) if node.op_type == found[1]]
    named = [node for node in same if node.name and node.name == found[2]] or same
    return node_label(named[0]) if len(named) == 1 else ""


def _unknown(model: ModelProto, op_type: str, version: str) -> Runs | None:
    node = _node(model, op_type, "")
    if node is None:
        return None
    history = onnx_schemas().get((domain_of(node), op_type))
    imported = opsets(model).get(domain_of(node), 0)
    if not history or min(history) > imported:
        text = f"ONNX has no {op_type} in version {imported} of {node.domain or 'ai.onnx'}: {node_label(node)}"
        return _wrong(text, "Is the op type right, and the opset that the model imports?")
    text = f"{version} does not implement {node_label(node)}, an operator of {node.domain or 'ai.onnx'}"
    return _lacks(text, _ELSEWHERE)


def _node(model: ModelProto, op_type: str, name: str) -> NodeProto | None:
    """Return a node of ONNX's domains by its op type and its name, which ONNX Runtime may change."""
    found = [node for node in nodes(model) if node.op_type == op_type and node.domain in ONNX_DOMAINS]
    named = [node for node in found if node.name == name]
    return next(iter(named or found), None)


def _missing(model: ModelProto, op_type: str, since: int, name: str, version: str) -> Runs | None:
    node = _node(model, op_type, name)
    if node is None and any(n.op_type == op_type for n in nodes(model)):
        return None
    domain = domain_of(node) if node else ""
    kernels = [
        kernel
        for kernel in _state.get_all_opkernel_def()
        if (kernel.domain, kernel.op_name, kernel.provider) == (domain, op_type, "CPUExecutionProvider")
    ]
    inner = f"{op_type}, of which ONNX or ONNX Runtime makes another node of the model"
    label = f"{node_label(node) if node else inner}, version {since} of {op_type}"
    if not kernels:
        return _lacks(f"{version} does not implement {op_type} on the CPU: {label}", _ELSEWHERE)
    of_version = [k for k in kernels if k.version_range[0] <= since <= k.version_range[1]]
    if not of_version:
        versions = ", ".join(sorted({_versions(*k.version_range) for k in kernels}))
        newer = "The model may be right. Export at an opset with one of these versions, or use a newer ONNX Runtime"
        return _lacks(f"{version} does not implement {label}; it has: {versions}", newer)
    takes = _constraints([k.type_constraints for k in of_version])
    given = _types(node, model) if node else ""
    return _lacks(
        f"{version} does not implement {label} for these dtypes{f' ({given})' if given else ''}; it has: {takes}",
        "The model may be right. Cast the inputs in the model to such a dtype, or run it in another runtime",
    )


def _versions(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} and newer" if last >= _LAST else f"{first} to {last}"


def _constraints(kernels: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """Return the dtypes of each type variable; ONNX Runtime lists most kernels once per dtype."""
    found: dict[str, set[str]] = {}
    for kernel in kernels:
        for name, types in kernel.items():
            found.setdefault(name, set()).update(t.removeprefix("tensor(").removesuffix(")") for t in types)
    return ", ".join(f"{name} {' '.join(sorted(types))}" for name, types in sorted(found.items()))


def _types(node: NodeProto, model: ModelProto) -> str:
    """Return the types of a node's inputs, as far as onnx infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # the checks of types report why
        return ""
    known: dict[str, TypeProto] = {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    known |= {i.name: helper.make_tensor_type_proto(i.data_type, i.dims) for i in model.graph.initializer}
    return one_line(", ".join(f"{name} {format_type(known[name])}" for name in node.input if name in known))


def run(
    path: Path,
    model: ModelProto,
    runtime: OrtSessions,
    inputs: Iterable[ModelInputs],
    tries: list[Try],
    *,
    died: str = "",
) -> Runs:
    """Make a session per setting, and run each once with each input. Appends to `tries` what came of a drawn one.

    `died`: how the process with a session of the optimised graph died, so that there is none here."""
    sessions: dict[str, Session] = {}
    broken = died
    refusals: dict[str, RefusedError] = {}
    for setting in (PLAIN,) if died else (OPTIMISED, PLAIN):
        try:
            sessions |= runtime.sessions(str(path), settings=[setting])
        except RefusedError as error:
            refusals[setting] = error
    if not sessions:
        return _refused(model, next(iter(refusals.values())), "refuses the model")
    if OPTIMISED in refusals:
        broken = f"it refuses the optimised graph: {refusals[OPTIMISED]}"
    done: list[Run] = []
    first: Runs | None = None
    took = 0.0
    slow, whole = False, seconds_left()
    for fed in inputs:
        slow = bool(fed.drawn and done) and seconds_left() < whole * (1 - _FOR_SIZES)
        if slow:
            break
        answers: dict[str, Sequence[Any]] = {}
        errors: dict[str, RefusedError] = {}
        began = time.perf_counter()
        problem = where = ""
        for setting, session in sessions.items():
            try:
                copies = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in fed.inputs.items()}
                answers[setting] = call(session, copies)
            except RefusedError as error:
                errors[setting] = error
        took = took or time.perf_counter() - began
        if PLAIN in errors or not answers:
            setting, refused = next(iter(errors.items()))
            problem = str(refused.__cause__)
            node = failing_node(model, problem)
            where = f" at {node}" if node else ""
            failed = _refused(model, refused, f"fails{where} ({setting}), {fed}", _DRAWN if fed.drawn else "", fed)
            if not fed.drawn:
                return failed
            first = first or failed
        else:
            why = f"the optimised graph fails: {errors[OPTIMISED]}" if errors else broken
            done.append(Run(fed=fed, answers=answers, broken=why))
        if fed.drawn:
            tries.append(Try(sizes=fed.sizes, error=problem, where=where))
    if not done:
        return first or _wrong("there is nothing to run it with")
    milliseconds = f"{took / len(sessions) * 1000:.2g} ms"
    settings = f"{OPTIMISED} and not" if sessions.keys() == {OPTIMISED, PLAIN} else next(iter(sessions))
    text = f"in ONNX Runtime {onnxruntime.__version__}, {settings}, {milliseconds}; {done[0].fed}{_also(done)}"
    if PLAIN in refusals:
        text += f". It refuses the graph as it is: {refusals[PLAIN]}"
    sizes = [finding.note("sizes", _SLOW)] if slow else [*size_findings(model, tries)]
    contradicting = (list(output_findings(model, run.fed.inputs, run.outputs)) for run in done)
    sizes += next((found for found in contradicting if found), [])
    return Runs(finding=finding.ok("runs", text), sizes=sizes, done=done)


def _also(done: Sequence[Run]) -> str:
    """Return how many further data sets there were, or the further sizes."""
    further = [run.fed for run in done[1:]]
    if not further:
        return ""
    if not further[0].drawn:
        return f" and {many(len(further), 'further data set')}"
    shapes = (", ".join(f"{name} {format_value(array)}" for name, array in fed.inputs.items()) for fed in further)
    return f"; and with {'; '.join(shapes)}"


def _refused(
    model: ModelProto, error: RefusedError, what: str, remedy: str = "", fed: ModelInputs | None = None
) -> Runs:
    """Return the finding of an error: its cause in a standard node, else in the words of `OrtSessions`."""
    if explained := explain(model, str(error.__cause__)):
        return explained
    text = f"ONNX Runtime {onnxruntime.__version__} {what}: {error}"
    return replace(_wrong(text, remedy), refused=fed)


def compare_with_expected(
    model: ModelProto, answers: Answers, expected: Mapping[str, Any], limits: Mapping[str, Tolerance], *, of: str
) -> Iterator[Finding]:
    """Yield how the outputs differ from the expected ones, or that all agree; `of` is where these come from."""
    names = [o.name for o in model.graph.output]
    known = [n for n in names if n in expected]
    found = {
        setting: [
            compare_value(name, actual, expected[name], limits)
            for name, actual in zip(names, outputs, strict=True)
            if name in expected
        ]
        for setting, outputs in answers.items()
    }
    wrong = {setting: [c for c in comparisons if not c.ok] for setting, comparisons in found.items()}
    bad = [setting for setting, comparisons in wrong.items() if comparisons]
    if not bad:
        worst = max((c for each in found.values() for c in each), key=lambda c: c.tolerance_used, default=None)
        limits_used = ""
        if worst:
            within = f" within rtol={worst.tolerance.rtol:g} atol={worst.tolerance.atol:g}"
            limits_used = f"{within}, {worst.tolerance_used:.0%} of the limit used up"
        further = many(len(names) - len(known), "further output")
        some = "" if len(known) == len(names) else f"; {further} without expected values"
        yield finding.ok("agrees", f"with {of}: {many(len(known), 'output')}{limits_used}{some}")
        return
    if bad == [OPTIMISED] and PLAIN in answers:
        yield finding.wrong(OPTIMIZER, f"the optimised graph does not agree with {of}: {wrong[OPTIMISED][0]}")
        yield from compare_with_expected(model, {PLAIN: answers[PLAIN]}, expected, limits, of=f"{of}, {PLAIN}")
        return
    for comparison in wrong[bad[0]]:
        only = "" if len(bad) == len(answers) else f" (only where the graph is {bad[0]})"
        first = f", first at {comparison.first}" if comparison.first else ""
        yield finding.wrong("agrees", f"not with {of}{only}: {comparison}{first}")


def compare_settings(model: ModelProto, answers: Answers, limits: Mapping[str, Tolerance]) -> Iterator[Finding]:
    """Yield the first output in which the optimised graph differs from the graph as it is."""
    if answers.keys() != {OPTIMISED, PLAIN}:
        return
    names = [o.name for o in model.graph.output]
    for name, optimised, plain in zip(names, answers[OPTIMISED], answers[PLAIN], strict=True):
        found = compare_value(name, optimised, plain, limits)
        if not found.ok:
            yield finding.wrong(OPTIMIZER, f"the optimised graph does not agree with the graph as it is: {found}")
            return


def compare_value(name: str, actual: Any, expected: Any, limits: Mapping[str, Tolerance]) -> Comparison:
    """Compare one output: a tensor, or a list, a dict or nothing, of whose elements the worst comparison counts."""
    subject = f"output {name!r}: "
    if isinstance(expected, list | dict) or expected is None or not hasattr(actual, "dtype"):
        return replace(_compare_parts(actual, expected, limits), subject=subject)
    tolerance = limits.get(dtype_name(expected), EXACT)
    return replace(compare(actual, expected, tolerance=tolerance), subject=subject)


def _compare_parts(actual: Any, expected: Any, limits: Mapping[str, Tolerance]) -> Comparison:
    if type(actual) is not type(expected):
        wanted = "a tensor" if hasattr(expected, "dtype") else _kind(expected)
        return Comparison(tolerance=EXACT, problem=f"{_kind(actual)}, expected {wanted}")
    if isinstance(expected, dict):
        if actual.keys() != expected.keys():
            return Comparison(tolerance=EXACT, problem=f"keys {sorted(actual)}, expected {sorted(expected)}")
        actual, expected = [[of[key] for key in sorted(expected)] for of in (actual, expected)]
    if not expected:  # None on both sides, or nothing in both
        differ = expected is not None and len(actual)
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} elements, expected none" if differ else "")
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} elements, expected {len(expected)}")
    pairs = zip(map(as_value, actual), map(as_value, expected), strict=True)
    found = [compare_value("", a, e, limits) for a, e in pairs]
    return max(found, key=lambda c: (bool(c.problem), c.tolerance_used))


def as_value(value: Any) -> Any:
    """Return a value of an implementation as `compare_value` takes it."""
    return value if isinstance(value, list | dict) or value is None else np.asarray(value)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
