"""Judge one case: what ONNX Runtime gave, what is expected, and what the reference evaluator says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.data.arrays import Array, dtype_name
from pipeline.data.compare import EXACT, Comparison, compare
from pipeline.spec import DType, Tolerance

Outputs = tuple[Array, ...]

# Settings of pipeline.trial.runtime that must give the same numbers.
ONE_THREAD, TWO_THREADS = "optimised", "on two threads"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known about one case.

    `answers` holds, per setting of ONNX Runtime, the outputs of two runs in one session. `written` names the inputs
    that held other numbers afterwards, `names` the outputs. `crowd` says what differs when several threads use the
    session, `dropped` what the lowering took no notice of.
    """

    names: Sequence[str]
    expected: Outputs
    answers: Mapping[str, tuple[Outputs, Outputs]]
    oracle: Outputs
    tolerances: Mapping[DType, Tolerance]
    written: Sequence[str] = ()
    crowd: str = ""
    dropped: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run in ONNX Runtime, and its worst output held against the expected one."""

    name: str
    outputs: Outputs
    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`detail` says what is wrong, or is empty. `oracle` is the reference evaluation against the expected outputs."""

    runs: tuple[Run, ...]
    oracle: Comparison
    detail: str


def judge(evidence: Evidence) -> Judgement:
    """Hold every run against the expected outputs, the runs against each other, and the oracle against both."""
    runs = tuple(_runs(evidence))
    oracle = _worst(evidence, evidence.oracle, evidence.expected)
    return Judgement(runs=runs, oracle=oracle, detail=next(_faults(evidence, runs, oracle), ""))


def _runs(evidence: Evidence) -> Iterator[Run]:
    """Yield every run. Most give equal bytes, and those are compared once."""
    seen: dict[object, Comparison] = {}
    for setting, both in evidence.answers.items():
        for name, outputs in zip((setting, f"{setting}, again"), both, strict=True):
            key = tuple((o.dtype, o.shape, o.tobytes()) for o in outputs)
            if key not in seen:
                seen[key] = _worst(evidence, outputs, evidence.expected)
            yield Run(name=name, outputs=outputs, comparison=seen[key])


def _worst(evidence: Evidence, actual: Outputs, expected: Outputs) -> Comparison:
    """Return the comparison of the output that is most wrong. A dtype that nobody tolerates errors in has none."""
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} outputs, expected {len(expected)}")
    by_dtype: Mapping[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in evidence.tolerances.items()}
    found = [
        replace(compare(a, e, tolerance=by_dtype.get(dtype_name(e), EXACT)), subject=subject)
        for subject, a, e in zip(_subjects(evidence), actual, expected, strict=True)
    ]
    return max(found, key=lambda c: (bool(c.problem), c.share))


def _subjects(evidence: Evidence) -> Sequence[str]:
    """Return how a message begins for each output: with its name, where there are several."""
    return [f"output {name!r}: " if len(evidence.names) > 1 else "" for name in evidence.names]


def _faults(evidence: Evidence, runs: Sequence[Run], oracle: Comparison) -> Iterator[str]:
    """Yield what is wrong, a cause before its consequences."""
    if evidence.written:
        yield f"the kernel wrote to its input {', '.join(map(repr, evidence.written))}"
    if wrong := [r for r in runs if not r.comparison.ok]:
        worst = max(wrong, key=lambda r: (bool(r.comparison.problem), r.comparison.share))
        only = "" if len(wrong) == len(runs) else f" (only in these runs: {'; '.join(r.name for r in wrong)})"
        yield f"{worst.comparison}{only}. {_side(evidence, worst, oracle)}"
    yield from _unrepeatable(evidence)
    if evidence.crowd:
        yield (
            f"right alone, and wrong while other threads run the same session: {evidence.crowd}. The kernel shares a "
            "buffer between calls; make it local, or let ONNX Runtime allocate it"
        )
    if not oracle.ok:
        yield (
            f"ONNX Runtime gives the expected output, the reference evaluator does not: {oracle}. The model holds "
            "something that ONNX Runtime overlooks, or the reference has changed since the test data were written"
        )


def _unrepeatable(evidence: Evidence) -> Iterator[str]:
    """Yield where runs that must give the same numbers, to the last bit, do not."""
    answers, subjects = evidence.answers, _subjects(evidence)
    for setting, (first, again) in answers.items():
        if where := _first_difference(subjects, first, again):
            yield (
                f"two equal runs of one session ({setting}) give different numbers: {where}. The kernel keeps a "
                "state, or reads memory that it has not written"
            )
    threads = [answers[setting][0] for setting in (ONE_THREAD, TWO_THREADS) if setting in answers]
    if len(threads) == 2 and (where := _first_difference(subjects, *threads)):
        yield (
            f"one thread and two give different numbers: {where}. The parts into which the kernel splits its work "
            "depend on each other"
        )


def _first_difference(subjects: Sequence[str], first: Outputs, second: Outputs) -> str:
    for subject, a, b in zip(subjects, first, second, strict=True):
        found = compare(b, a, tolerance=EXACT)
        if not found.ok:
            return subject + (found.problem or f"at {found.worst} {found.expected}, then {found.actual}")
    return ""


def _side(evidence: Evidence, wrong: Run, oracle: Comparison) -> str:
    """Say with whom the reference evaluator agrees: it runs the model as well, but with the reference."""
    if oracle.ok:
        return "The reference evaluator agrees with the expected output: the kernel is wrong"
    if _worst(evidence, wrong.outputs, evidence.oracle).ok:
        if evidence.dropped:
            return f"The reference evaluator agrees with ONNX Runtime: {evidence.dropped}"
        return (
            "The reference evaluator agrees with ONNX Runtime: the test data are stale or the reference has changed "
            "(python -m pipeline data), or the model does not hold the attributes of the case (python -m pipeline "
            "export)"
        )
    return "The reference evaluator agrees with neither: look at the model first, then at the kernel"
