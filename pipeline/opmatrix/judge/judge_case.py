"""Judge one case for verify: compare its runs in ONNX Runtime, the expected outputs and the reference evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import EXACT, Comparison, Pair, compare, first_difference, with_pattern
from opmatrix.data.truth import DECLARED, Judge
from opmatrix.judge.message import Voices, two_voices
from opmatrix.records.verdict import percent
from opmatrix.spec import DType, Tolerance

Outputs = tuple[Array, ...]

# What the reference evaluator shows to be wrong. It runs the model with reference.py in place of custom nodes, so that
# only where the model has none it is a voice apart from the reference.
Blamed = Literal["runtime", "kernel or reference", "data", "neither"]
_BLAMED: Mapping[Blamed, str] = {
    "runtime": "runs no reference.py here, and agrees with the expected output: ONNX Runtime is wrong",
    "kernel or reference": "agrees with the expected output: ",
    "data": "agrees with ONNX Runtime: the test data are stale or the reference has changed (python -m opmatrix data), "
    "or the model does not have the attributes of the case (python -m opmatrix export)",
    "neither": "agrees with neither: look at the model first, then at the kernel",
}

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
    judge: Judge = DECLARED
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

    def lines(self) -> Iterator[str]:
        """Yield the lines that a replayed case prints: per run the comparison, the error and the tolerance used."""
        for run in self.runs:
            c = run.comparison
            used = percent(c.tolerance_used)
            yield f"  {run.name + ':':<22} {c}; error {c.error:.2g}, {c.ulp:.3g} ULP, {used} of the limit"
        yield f"  reference evaluator:   {self.evaluated}"
        if not self.detail:
            yield "verified"


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
    return case.tolerances.get(cast(DType, dtype_name(expected)), EXACT)


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
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} outputs, expected {len(expected)}")
    found = [compare(a, e, tolerance=_tolerance(case, e)) for a, e in zip(actual, expected, strict=True)]
    worst = max(range(len(found)), key=lambda n: (bool(found[n].problem), found[n].tolerance_used))
    comparison = with_pattern(found[worst], actual[worst], expected[worst])
    return replace(comparison, subject=_subjects(case)[worst]) if len(found) > 1 else comparison


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
        names = "; ".join(r.name for r in wrong)
        runs_that_differ = f" (only in these runs: {names})" if len(wrong) < len(runs) else ""
        if case.vectors and (evaluated.ok or case.independent):
            yield f"{_voices(case, worst)}{runs_that_differ}"
        else:
            blamed: Blamed = "runtime" if case.independent else "kernel or reference"
            if not evaluated.ok:
                blamed = "data" if _worst(case, worst.outputs, case.evaluated).ok else "neither"
            why = _BLAMED[blamed] + (two_voices(case.judge) if blamed == "kernel or reference" else "")
            if case.ignored and blamed == "data":  # that explains why the evaluator agrees with ONNX Runtime
                why = f"agrees with ONNX Runtime: {case.ignored}"
            yield f"{worst.comparison}{runs_that_differ}. The reference evaluator {why}"
    elif case.vectors and (difference := str(_voices(case, runs[0]))):
        yield difference
    for setting, (first, again) in case.outputs.items():
        if found := first_difference(first, again, _subjects(case)):
            yield (
                f"two equal runs of one session ({setting}) give different numbers: {_both(found, ', then {}')}. The "
                "kernel keeps a state, or reads memory that it has not written"
            )
    one = case.outputs[ONE_THREAD][0]
    if TWO_THREADS in case.outputs and (found := first_difference(one, case.outputs[TWO_THREADS][0], _subjects(case))):
        yield (
            f"one thread and two give different numbers: {_both(found, ', then {}')}. The parts into which the kernel "
            "splits its work depend on each other"
        )
    for setting, outputs in case.in_place.items():
        if found := first_difference(case.outputs[setting][0], outputs, _subjects(case)):
            yield (
                f"wrong where an output has the memory of an input, as its may_inplace allows ({setting}): "
                f"{_both(found, ', and {} in place')}. The kernel reads an element of the input after it has written "
                "that of the output; remove may_inplace, or read it before"
            )
    for kept, outputs in case.alone.items():
        if found := first_difference(one, outputs, _subjects(case)):
            yield (
                f"wrong where the node leaves out all optional outputs but {kept!r}: "
                f"{_both(found, ', and {} without them')}. The kernel must compute each output that is there, "
                "whichever others are"
            )
    if crowd := case.concurrent:
        shown = _both(crowd, " alone, {} in a crowd") if isinstance(crowd, Comparison) else crowd
        yield (
            f"right alone, and wrong while other threads run the same session: {shown}. The kernel shares a buffer "
            "between calls; make it local, or let ONNX Runtime allocate it"
        )
    if not evaluated.ok:
        yield (
            f"ONNX Runtime gives the expected output, the reference evaluator does not: {evaluated}. The model holds "
            "something that ONNX Runtime overlooks, or the reference has changed since the test data were written"
        )


def _both(comparison: Comparison, words: str) -> str:
    """Return the values where two runs differ; `words` have ``{}`` for that of the second."""
    where = f"at {comparison.worst} {comparison.expected}{words.format(comparison.actual)}"
    return comparison.subject + (comparison.problem or where)
