"""Judge one case: what ONNX Runtime gave, what is expected, and what the reference evaluator says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opmatrix.spec import DType, Tolerance
from opmatrix.testdata import case_message
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import EXACT, Comparison, compare

Outputs = tuple[Array, ...]

# Settings of opmatrix.ort_checks.sessions that must give the same numbers.
ONE_THREAD, TWO_THREADS = "optimised", "on two threads"


@dataclass(frozen=True, kw_only=True)
class CaseRuns:
    """All that is known about one case.

    `answers` holds, per setting of ONNX Runtime, the outputs of two runs in one session. `written` names the inputs
    that held other numbers afterwards, `names` the outputs. `crowd` is what differs, or goes wrong, when several
    threads use the session; `dropped` is the message about attributes that the lowering does not use.
    """

    names: Sequence[str]
    expected: Outputs
    answers: Mapping[str, tuple[Outputs, Outputs]]
    oracle: Outputs
    tolerances: Mapping[DType, Tolerance]
    written: Sequence[str] = ()
    crowd: Comparison | str | None = None
    dropped: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run in ONNX Runtime, and its worst output held against the expected one."""

    name: str
    outputs: Outputs
    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class CaseJudgement:
    """`detail` says what is wrong, or is empty. `oracle` is the reference evaluation against the expected outputs."""

    runs: tuple[Run, ...]
    oracle: Comparison
    detail: str


def judge_case(evidence: CaseRuns) -> CaseJudgement:
    """Hold every run against the expected outputs, the runs against each other, and the oracle against both."""
    runs = tuple(_runs(evidence))
    oracle = _worst(evidence, evidence.oracle, evidence.expected)
    return CaseJudgement(runs=runs, oracle=oracle, detail=next(_faults(evidence, runs, oracle), ""))


def _runs(evidence: CaseRuns) -> Iterator[Run]:
    """Yield every run. Most give equal bytes, and those are compared once."""
    seen: dict[object, Comparison] = {}
    for setting, both in evidence.answers.items():
        for name, outputs in zip((setting, f"{setting}, again"), both, strict=True):
            key = tuple((o.dtype, o.shape, o.tobytes()) for o in outputs)
            if key not in seen:
                seen[key] = _worst(evidence, outputs, evidence.expected)
            yield Run(name=name, outputs=outputs, comparison=seen[key])


def _worst(evidence: CaseRuns, actual: Outputs, expected: Outputs) -> Comparison:
    """Return the comparison of the output that is most wrong. A dtype that nobody tolerates errors in has none."""
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} outputs, expected {len(expected)}")
    by_dtype: Mapping[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in evidence.tolerances.items()}
    found = [
        replace(compare(a, e, tolerance=by_dtype.get(dtype_name(e), EXACT)), subject=subject)
        for subject, a, e in zip(_subjects(evidence), actual, expected, strict=True)
    ]
    return max(found, key=lambda c: (bool(c.problem), c.tolerance_used))


def _subjects(evidence: CaseRuns) -> Sequence[str]:
    """Return how a message begins for each output: with its name, where there are several."""
    return [f"output {name!r}: " if len(evidence.names) > 1 else "" for name in evidence.names]


def _faults(evidence: CaseRuns, runs: Sequence[Run], oracle: Comparison) -> Iterator[str]:
    """Yield what is wrong, a cause before its consequences."""
    if evidence.written:
        yield case_message.wrote_input(evidence.written)
    if wrong := [r for r in runs if not r.comparison.ok]:
        worst = max(wrong, key=lambda r: (bool(r.comparison.problem), r.comparison.tolerance_used))
        yield case_message.differs(
            worst.comparison,
            only=[] if len(wrong) == len(runs) else [r.name for r in wrong],
            blamed=_blamed(evidence, worst, oracle),
            ignored=evidence.dropped,
        )
    for setting, (first, again) in evidence.answers.items():
        if found := _first_difference(evidence, first, again):
            yield case_message.not_repeatable(setting, found)
    threads = [evidence.answers[setting][0] for setting in (ONE_THREAD, TWO_THREADS) if setting in evidence.answers]
    if len(threads) == 2 and (found := _first_difference(evidence, *threads)):
        yield case_message.threads_differ(found)
    if evidence.crowd:
        yield case_message.wrong_among_threads(evidence.crowd)
    if not oracle.ok:
        yield case_message.evaluator_differs(oracle)


def _first_difference(evidence: CaseRuns, first: Outputs, second: Outputs) -> Comparison | None:
    """Return how outputs that must be equal, to the last bit, differ."""
    for subject, a, b in zip(_subjects(evidence), first, second, strict=True):
        found = compare(b, a, tolerance=EXACT)
        if not found.ok:
            return replace(found, subject=subject)
    return None


def _blamed(evidence: CaseRuns, wrong: Run, oracle: Comparison) -> case_message.Blamed:
    """Return with whom the reference evaluator agrees: it runs the model as well, but with the reference."""
    if oracle.ok:
        return "kernel"
    return "data" if _worst(evidence, wrong.outputs, evidence.oracle).ok else "neither"
