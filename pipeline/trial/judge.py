"""Judge one case: what ONNX Runtime gave, what is expected, and what the reference evaluator says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    that held other numbers afterwards.
    """

    expected: Outputs
    answers: Mapping[str, tuple[Outputs, Outputs]]
    oracle: Outputs
    tolerances: Mapping[DType, Tolerance]
    written: Sequence[str] = ()


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
    oracle = _worst(evidence.oracle, evidence.expected, evidence.tolerances)
    return Judgement(runs=runs, oracle=oracle, detail=next(_faults(evidence, runs, oracle), ""))


def _runs(evidence: Evidence) -> Iterator[Run]:
    """Yield every run. Most give equal bytes, and those are compared once."""
    seen: dict[object, Comparison] = {}
    for setting, both in evidence.answers.items():
        for name, outputs in zip((setting, f"{setting}, again"), both, strict=True):
            key = tuple((o.dtype, o.shape, o.tobytes()) for o in outputs)
            if key not in seen:
                seen[key] = _worst(outputs, evidence.expected, evidence.tolerances)
            yield Run(name=name, outputs=outputs, comparison=seen[key])


def _worst(actual: Outputs, expected: Outputs, tolerances: Mapping[DType, Tolerance]) -> Comparison:
    """Return the comparison of the output that is most wrong."""
    if len(actual) != len(expected):
        return Comparison(tolerance=EXACT, problem=f"{len(actual)} outputs, expected {len(expected)}")
    by_dtype: Mapping[str, Tolerance] = {str(dtype): tolerance for dtype, tolerance in tolerances.items()}
    found = [compare(a, e, tolerance=by_dtype[dtype_name(e)]) for a, e in zip(actual, expected, strict=True)]
    return max(found, key=lambda c: (bool(c.problem), c.share))


def _faults(evidence: Evidence, runs: Sequence[Run], oracle: Comparison) -> Iterator[str]:
    """Yield what is wrong, a cause before its consequences."""
    if evidence.written:
        yield f"the kernel wrote to its input {', '.join(map(repr, evidence.written))}"
    if wrong := [r for r in runs if not r.comparison.ok]:
        worst = max(wrong, key=lambda r: (bool(r.comparison.problem), r.comparison.share))
        only = "" if len(wrong) == len(runs) else f" (only in these runs: {'; '.join(r.name for r in wrong)})"
        yield f"{worst.comparison}{only}. {_side(evidence, worst, oracle)}"
    yield from _unrepeatable(evidence.answers)
    if not oracle.ok:
        yield (
            f"ONNX Runtime gives the expected output, the reference evaluator does not: {oracle}. The model holds "
            "something that ONNX Runtime overlooks, or the reference has changed since the test data were written"
        )


def _unrepeatable(answers: Mapping[str, tuple[Outputs, Outputs]]) -> Iterator[str]:
    """Yield where runs that must give the same numbers, to the last bit, do not."""
    for setting, (first, again) in answers.items():
        if where := _first_difference(first, again):
            yield (
                f"two equal runs of one session ({setting}) give different numbers: {where}. The kernel keeps a "
                "state, or reads memory that it has not written"
            )
    threads = [answers[setting][0] for setting in (ONE_THREAD, TWO_THREADS) if setting in answers]
    if len(threads) == 2 and (where := _first_difference(*threads)):
        yield (
            f"one thread and two give different numbers: {where}. The parts into which the kernel splits its work "
            "depend on each other"
        )


def _first_difference(first: Outputs, second: Outputs) -> str:
    for a, b in zip(first, second, strict=True):
        found = compare(b, a, tolerance=EXACT)
        if not found.ok:
            return found.problem or f"at {found.worst} {found.expected}, then {found.actual}"
    return ""


def _side(evidence: Evidence, wrong: Run, oracle: Comparison) -> str:
    """Say with whom the reference evaluator agrees: it runs the model as well, but with the reference."""
    if oracle.ok:
        return "The reference evaluator agrees with the expected output: the kernel is wrong"
    if _worst(wrong.outputs, evidence.oracle, evidence.tolerances).ok:
        return (
            "The reference evaluator agrees with ONNX Runtime: the test data are stale or the reference has changed "
            "(python -m pipeline data), or the model does not hold the attributes of the case (python -m pipeline "
            "export)"
        )
    return "The reference evaluator agrees with neither: look at the model first, then at the kernel"
