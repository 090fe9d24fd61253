"""The "runs" and "agrees" findings: run a model in ONNX Runtime, optimised and not, and compare. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnxruntime
from onnx import ModelProto

from opmatrix.errors import many
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.model_inputs import ModelInputs
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, call
from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import EXACT, Comparison, compare

OPTIMISED, PLAIN = "optimised", "not optimised"  # settings of opmatrix.ort_checks.sessions
Answers = Mapping[str, Sequence[Array]]
_OPTIMISATION = (
    "An optimisation of ONNX Runtime changes the result: run it with a lower graph_optimization_level, and "
    "report it there"
)


def run(path: Path, runtime: OrtSessions, fed: ModelInputs) -> tuple[list[Finding], Answers]:
    """Make a session per setting and run each once. Returns one finding, and the outputs by setting."""
    version = onnxruntime.__version__
    try:
        sessions = runtime.sessions(str(path), settings=[OPTIMISED, PLAIN])
    except RefusedError as error:
        return [finding.wrong("runs", f"ONNX Runtime {version} refuses the model: {error}")], {}
    answers: dict[str, Sequence[Array]] = {}
    took = 0.0
    for setting, session in sessions.items():
        began = time.perf_counter()
        try:
            answers[setting] = call(session, {name: array.copy() for name, array in fed.inputs.items()})
        except RefusedError as error:
            remedy = "They were drawn: give it some that it can compute with: --inputs FILE.npz" if fed.drawn else ""
            text = f"ONNX Runtime {version} fails ({setting}), {fed}: {error}"
            return [finding.wrong("runs", text, remedy)], answers
        took = time.perf_counter() - began
    text = f"in ONNX Runtime {version}, optimised and not, {took * 1000:.2g} ms; {fed}"
    return [finding.ok("runs", text)], answers


def compare_with_expected(
    model: ModelProto, answers: Answers, expected: Mapping[str, Array], limits: Mapping[str, Tolerance], *, of: str
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
        some = "" if len(known) == len(names) else f"; nothing is known of {len(names) - len(known)} further outputs"
        yield finding.ok("agrees", f"with {of}: {many(len(known), 'output')}{limits_used}{some}")
        return
    for comparison in wrong[bad[0]]:
        only = "" if len(bad) == len(answers) else f" (only where the graph is {bad[0]})"
        first = f", first at {comparison.first}" if comparison.first else ""
        remedy = _OPTIMISATION if bad == [OPTIMISED] else ""
        yield finding.wrong("agrees", f"not with {of}{only}: {comparison}{first}", remedy)


def compare_settings(model: ModelProto, answers: Answers, limits: Mapping[str, Tolerance]) -> Iterator[Finding]:
    """Yield the outputs in which the optimised graph differs from the graph as it is."""
    names = [o.name for o in model.graph.output]
    for name, optimised, plain in zip(names, answers[OPTIMISED], answers[PLAIN], strict=True):
        found = compare_value(name, optimised, plain, limits)
        if not found.ok:
            text = f"the optimised graph does not agree with the graph as it is: {found}"
            yield finding.wrong("agrees", text, _OPTIMISATION)


def compare_value(name: str, actual: object, expected: Array, limits: Mapping[str, Tolerance]) -> Comparison:
    """Compare one output; a value that is no tensor is a problem."""
    subject = f"output {name!r}: "
    if not hasattr(actual, "dtype"):
        return Comparison(tolerance=EXACT, subject=subject, problem=f"a {type(actual).__name__} and no tensor")
    tolerance = limits.get(dtype_name(expected), EXACT)
    compared = compare(actual, expected, tolerance=tolerance)  # type: ignore[arg-type]  # it has a dtype
    return replace(compared, subject=subject)
