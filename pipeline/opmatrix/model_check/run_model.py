"""The "runs" and "agrees" findings: run a model in ONNX Runtime, optimised and not, and compare. No torch."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto

from opmatrix.errors import many
from opmatrix.model_check import finding
from opmatrix.model_check.finding import OPTIMIZER, Finding
from opmatrix.model_check.limits import seconds_left
from opmatrix.model_check.model_inputs import DrawnInputs, ModelInputs
from opmatrix.model_check.ort_refusals import explain, failing_node
from opmatrix.model_check.size_findings import Try, output_findings, size_findings
from opmatrix.model_check.type_text import format_value
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call
from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import dtype_name
from opmatrix.testdata.compare import EXACT, Comparison, compare

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


def run(
    path: Path, model: ModelProto, runtime: OrtSessions, given: Iterable[ModelInputs] | DrawnInputs, *, died: str = ""
) -> Runs:
    """Make a session per setting, and run each once with each input; drawn ones are told whether it computed.

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
    tries: list[Try] = []
    done: list[Run] = []
    first: Runs | None = None
    took = 0.0
    slow, whole = False, seconds_left()
    feeds = iter(given)
    fed = next(feeds, None)
    while fed is not None:
        answers: dict[str, Sequence[Any]] = {}
        errors: dict[str, RefusedError] = {}
        began = time.perf_counter()
        problem = where = ""
        for setting, session in sessions.items():
            try:
                answers[setting] = call(session, {name: _copied(value) for name, value in fed.inputs.items()})
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
            tries.append(Try(fed=fed, error=problem, where=where))
        try:
            fed = feeds.send(not problem) if isinstance(feeds, Generator) else next(feeds, None)
        except StopIteration:
            break
        slow = bool(fed and fed.drawn and done) and seconds_left() < whole * (1 - _FOR_SIZES)
        if slow:
            break
    if not done:
        return first or Runs(finding=finding.wrong("runs", "there is nothing to run it with"))
    milliseconds = f"{took / len(sessions) * 1000:.2g} ms"
    settings = f"{OPTIMISED} and not" if sessions.keys() == {OPTIMISED, PLAIN} else next(iter(sessions))
    text = f"in ONNX Runtime {onnxruntime.__version__}, {settings}, {milliseconds}; {done[0].fed}{_also(done)}"
    if PLAIN in refusals:
        text += f". It refuses the graph as it is: {refusals[PLAIN]}"
    sizes = [finding.note("sizes", _SLOW)] if slow else [*size_findings(model, tries)]
    contradicting = (list(output_findings(model, run.fed, run.outputs)) for run in done)
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
    if refusal := explain(model, str(error.__cause__)):
        return Runs(finding=finding.wrong("runs", refusal.text, refusal.remedy), missing=refusal.missing)
    text = f"ONNX Runtime {onnxruntime.__version__} {what}: {error}"
    return Runs(finding=finding.wrong("runs", text, remedy), refused=fed)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


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
        some = (
            ""
            if len(known) == len(names)
            else f"; {many(len(names) - len(known), 'further output')} without expected values"
        )
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
    pairs = zip(map(_as_value, actual), map(_as_value, expected), strict=True)
    found = [compare_value("", a, e, limits) for a, e in pairs]
    return max(found, key=lambda c: (bool(c.problem), c.tolerance_used))


def _as_value(value: Any) -> Any:
    return value if isinstance(value, list | dict) or value is None else np.asarray(value)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
