"""Judge one case for verify: compare its runs in ONNX Runtime, the expected outputs and the reference evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import EXACT, Comparison, Pair, compare, first_difference, with_pattern
from opmatrix.data.truth import Judge
from opmatrix.judge import message
from opmatrix.judge.rounding import Voices
from opmatrix.spec import DType, Tolerance

Outputs = tuple[Array, ...]

# Settings of opmatrix.ort_checks.sessions that must give equal bytes.
ONE_THREAD, TWO_THREADS = "optimised", "on two threads"


@dataclass(frozen=True, kw_only=True)
class CaseRuns:
    """The runs of one case.

    `names` are the outputs' names. `outputs` has, per setting of ONNX Runtime, the outputs of two runs in one session.
    `evaluated` are the outputs of the reference evaluator, which is `independent` where it runs no reference.py.
    `judge`: the precision of the expected outputs. `vectors`: the outputs from elsewhere, or none, of the `source`.
    `overwritten` names the inputs that the runs changed.
    `in_place` has, per setting, the outputs of a run in which some outputs had the memory of an input.
    `alone` has, per optional output, the outputs of a run in which the node left out its other optional outputs.
    `concurrent` is the difference or the error when several threads use the session; `ignored` is the message about
    attributes that the lowering ignores, or about a decomposition.
    """

    names: Sequence[str]
    expected: Outputs
    outputs: Mapping[str, tuple[Outputs, Outputs]]
    evaluated: Outputs
    tolerances: Mapping[DType, Tolerance]
    independent: bool = False
    judge: Judge = Judge(precision="declared dtype")  # noqa: RUF009 - it is frozen
    vectors: Outputs = ()
    source: str = ""
    overwritten: Sequence[str] = ()
    in_place: Mapping[str, Outputs] = field(default_factory=dict)
    alone: Mapping[str, Outputs] = field(default_factory=dict)
    concurrent: Comparison | str | None = None
    ignored: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run in ONNX Runtime, and the comparison of its worst output with the expected one."""

    name: str
    outputs: Outputs
    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class CaseJudgement:
    """`evaluated` compares the reference evaluation with the expected outputs. `detail` is the first fault, or "".
    `case` has the arrays."""

    case: CaseRuns
    runs: tuple[Run, ...]
    evaluated: Comparison
    detail: str


def judge_case(case: CaseRuns) -> CaseJudgement:
    """Compare the runs with the expected outputs, with each other, and with the reference evaluation."""
    runs = tuple(_runs(case))
    evaluated = _worst(case, case.evaluated, case.expected)
    detail = next(_faults(case, runs, evaluated), "")
    return CaseJudgement(case=case, runs=runs, evaluated=evaluated, detail=detail)


def pairs(judgement: CaseJudgement) -> Iterator[Pair]:
    """Yield the outputs that must agree, the worst run first, then in the order of `_faults`."""
    case, reference = judgement.case, f"reference in {judgement.case.judge.precision}"
    declared = [_tolerance(case, array) for array in case.expected]
    exact = [EXACT] * len(declared)
    worst = max(judgement.runs, key=lambda r: (bool(r.comparison.problem), r.comparison.tolerance_used))
    yield Pair(_in_ort(worst.name), worst.outputs, reference, case.expected, declared)
    if case.vectors:
        yield Pair(reference, case.expected, f"vectors ({case.source})", case.vectors, declared)
    for setting, (first, again) in case.outputs.items():
        yield Pair(_in_ort(f"{setting}, again"), again, _in_ort(setting), first, exact)
    one, _ = case.outputs[ONE_THREAD]
    if TWO_THREADS in case.outputs:
        yield Pair(_in_ort(TWO_THREADS), case.outputs[TWO_THREADS][0], _in_ort(ONE_THREAD), one, exact)
    for setting, outputs in case.in_place.items():
        yield Pair(_in_ort(f"{setting}, in place"), outputs, _in_ort(setting), case.outputs[setting][0], exact)
    for kept, outputs in case.alone.items():
        yield Pair(_in_ort(f"with only output {kept!r}"), outputs, _in_ort(ONE_THREAD), one, exact)
    yield Pair("reference evaluator", case.evaluated, reference, case.expected, declared)


def _in_ort(run: str) -> str:
    return f"ONNX Runtime, {run}"


def _tolerance(case: CaseRuns, expected: Array) -> Tolerance:
    """Return the tolerance of an output. A dtype without one must be equal."""
    by_dtype: Mapping[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in case.tolerances.items()}
    return by_dtype.get(dtype_name(expected), EXACT)


def _runs(case: CaseRuns) -> Iterator[Run]:
    """Yield every run. Runs that share their outputs share one comparison."""
    seen: dict[tuple[int, ...], Comparison] = {}
    for setting, both in case.outputs.items():
        for name, outputs in zip((setting, f"{setting}, again"), both, strict=True):
            key = tuple(map(id, outputs))  # ModelRunner.run_case gives equal outputs as the same arrays
            if key not in seen:
                seen[key] = _worst(case, outputs, case.expected)
            yield Run(name=name, outputs=outputs, comparison=seen[key])


def _worst(case: CaseRuns, actual: Outputs, expected: Outputs) -> Comparison:
    """Return the comparison of the output with the largest error."""
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} outputs, expected {len(expected)}")
    found = [
        replace(compare(a, e, tolerance=_tolerance(case, e)), subject=subject)
        for subject, a, e in zip(_subjects(case), actual, expected, strict=True)
    ]
    worst = max(range(len(found)), key=lambda n: (bool(found[n].problem), found[n].tolerance_used))
    return with_pattern(found[worst], actual[worst], expected[worst])


def _voices(case: CaseRuns, run: Run) -> Voices:
    return Voices(
        reference_kernel=run.comparison,
        reference_vectors=_worst(case, case.expected, case.vectors),
        kernel_vectors=_worst(case, run.outputs, case.vectors),
        source=case.source,
    )


def _subjects(case: CaseRuns) -> Sequence[str]:
    """Return how the message of each output begins: with its name, where there are several."""
    return [f"output {name!r}: " if len(case.names) > 1 else "" for name in case.names]


def _faults(case: CaseRuns, runs: Sequence[Run], evaluated: Comparison) -> Iterator[str]:
    """Yield the message of each fault, a cause before its consequences."""
    if case.overwritten:
        yield f"the kernel wrote to its input {', '.join(map(repr, case.overwritten))}"
    if wrong := [r for r in runs if not r.comparison.ok]:
        worst = max(wrong, key=lambda r: (bool(r.comparison.problem), r.comparison.tolerance_used))
        # The reference evaluator runs the same model, with the reference in place of the kernel.
        only = [] if len(wrong) == len(runs) else [r.name for r in wrong]
        if case.vectors and (evaluated.ok or case.independent):
            yield f"{_voices(case, worst)}{message.in_runs(only)}"
        else:
            blamed: message.Blamed = "runtime" if case.independent else "kernel or reference"
            if not evaluated.ok:
                blamed = "data" if _worst(case, worst.outputs, case.evaluated).ok else "neither"
            yield message.differs(worst.comparison, only=only, blamed=blamed, judge=case.judge, ignored=case.ignored)
    elif case.vectors and (difference := str(_voices(case, runs[0]))):
        yield difference
    for setting, (first, again) in case.outputs.items():
        if found := first_difference(first, again, _subjects(case)):
            yield message.not_repeatable(setting, found)
    one = case.outputs[ONE_THREAD][0]
    if TWO_THREADS in case.outputs and (found := first_difference(one, case.outputs[TWO_THREADS][0], _subjects(case))):
        yield message.threads_differ(found)
    for setting, outputs in case.in_place.items():
        if found := first_difference(case.outputs[setting][0], outputs, _subjects(case)):
            yield message.in_place_differs(setting, found)
    for kept, outputs in case.alone.items():
        if found := first_difference(one, outputs, _subjects(case)):
            yield message.alone_differs(kept, found)
    if case.concurrent:
        yield message.wrong_among_threads(case.concurrent)
    if not evaluated.ok:
        yield message.evaluator_differs(evaluated)
