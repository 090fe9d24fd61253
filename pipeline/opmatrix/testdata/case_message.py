"""The words of a case that is not verified, made from values: what was compared, in which runs, how to run it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from opmatrix.spec import Model
from opmatrix.testdata.compare import Comparison
from opmatrix.verdict import WRONG, CaseResult, Verdict, percent

Blamed = Literal["kernel", "data", "neither"]
"""Where the reference evaluator, which runs the model with the reference, points to."""

_BLAMED: Mapping[Blamed, str] = {
    "kernel": "agrees with the expected output: the kernel is wrong",
    "data": "agrees with ONNX Runtime: the test data are stale or the reference has changed (python -m opmatrix data), "
    "or the model does not hold the attributes of the case (python -m opmatrix export)",
    "neither": "agrees with neither: look at the model first, then at the kernel",
}


# Of a kernel in torch.


def mismatch(subject: str, comparison: Comparison, *, replay: str) -> str:
    """Return the message of a mismatch: whose it is, what differs, and the command that shows it again."""
    return f"{subject}: {comparison}. Replay: {replay}"


def refused(subject: str, error: Exception, *, replay: str) -> str:
    """Return the message of a kernel that refuses a case."""
    return f"{subject}: the kernel refuses it: {error}. Replay: {replay}"


# Of a model in ONNX Runtime: what is wrong.


def wrote_input(names: Sequence[str]) -> str:
    return f"the kernel wrote to its input {', '.join(map(repr, names))}"


def differs(worst: Comparison, *, only: Sequence[str], blamed: Blamed, ignored: str = "") -> str:
    """Return how runs differ from the expected output, `only` these where others agree; `ignored` is what explains it
    where the reference evaluator agrees with ONNX Runtime."""
    runs = f" (only in these runs: {'; '.join(only)})" if only else ""
    said = f"agrees with ONNX Runtime: {ignored}" if ignored and blamed == "data" else _BLAMED[blamed]
    return f"{worst}{runs}. The reference evaluator {said}"


def ignored_attributes(operator: str, model: Model, names: Sequence[str]) -> str:
    """Return what to do about attributes that a lowering does not use, or nothing for none."""
    if not names:
        return ""
    set_to = " and ".join(f"{n!r}, which model {model.name!r} sets to {model.attributes[n]!r}" for n in names)
    return (
        f"the lowering drops {set_to}: it emits the nodes of the default. Emit what computes it, or refuse it: "
        f"g.unsupported() in ops/{operator}/lowering.py, and `unsupported` in the model"
    )


def not_repeatable(setting: str, first: Comparison) -> str:
    return (
        f"two equal runs of one session ({setting}) give different numbers: {_then(first)}. The kernel keeps a "
        "state, or reads memory that it has not written"
    )


def threads_differ(first: Comparison) -> str:
    return (
        f"one thread and two give different numbers: {_then(first)}. The parts into which the kernel splits its work "
        "depend on each other"
    )


def _then(found: Comparison) -> str:
    return found.subject + (found.problem or f"at {found.worst} {found.expected}, then {found.actual}")


def wrong_among_threads(found: Comparison | str) -> str:
    """Return the message of a run that gives something else, or an error, while other threads run the same session."""
    where = found
    if isinstance(found, Comparison):
        where = found.problem or f"at {found.worst} {found.expected} alone, {found.actual} in a crowd"
    return (
        f"right alone, and wrong while other threads run the same session: {where}. The kernel shares a "
        "buffer between calls; make it local, or let ONNX Runtime allocate it"
    )


def evaluator_differs(evaluated: Comparison) -> str:
    return (
        f"ONNX Runtime gives the expected output, the reference evaluator does not: {evaluated}. The model holds "
        "something that ONNX Runtime overlooks, or the reference has changed since the test data were written"
    )


# Of a case as it is declared.


def unsupported(model: Model, reason: str) -> str:
    return f"{model.unsupported} ({reason})"


def runs_although_unsupported(model: Model) -> str:
    return f"declared unsupported ({model.unsupported}), but it runs. Remove `unsupported` from its model"


def reads_although_unreadable(declared: str) -> str:
    return f"pipeline/opmatrix/matrix/cells.py says that {declared}, but it does. Measure it anew with `doit probe`"


def published(version: int, detail: str) -> str:
    return f"a model of version {version} runs no more: {detail}"


# Of a verdict.


def detail(cases: Sequence[CaseResult]) -> str:
    """Return the detail of a verdict: how many of its cases are wrong, and the first in full."""
    wrong = [case for case in cases if case.outcome in WRONG]
    return f"{len(wrong)} of {len(cases)} cases; {wrong[0].case}: {wrong[0].detail}" if wrong else ""


def faults(found: Verdict) -> dict[str, str]:
    """Return one line per fault, by the names of its cases: those that share one are told together."""
    by_detail: dict[str, list[str]] = {}
    for result in found.cases:
        if result.outcome in WRONG:
            by_detail.setdefault(result.detail, []).append(result.case)
    if not by_detail:
        return {"": f"{found}: {found.detail}"}
    told = {}
    for said, (case, *others) in by_detail.items():
        also = f" Also {', '.join(others)}." if others else ""
        told[", ".join([case, *others])] = f"{found.case_name(case)}: {said}.{also} Replay: {found.replay(case)}"
    return told


def replayed(
    model: Path, data: Path, runs: Sequence[tuple[str, Comparison]], *, evaluated: Comparison, verified: bool
) -> Iterator[str]:
    """Yield the lines that show how a replayed case went: what each run gave, and how much of the tolerance it used."""
    yield f"model {model}\ndata  {data}"
    for name, c in runs:
        used = percent(c.tolerance_used)
        yield f"  {name + ':':<22} {c}; error {c.error:.2g}, {c.ulp:.3g} ULP, {used} of the limit"
    yield f"  reference evaluator:   {evaluated}"
    if verified:
        yield "verified"
