"""The messages of failing cases, for register, verify and the report: what differs, in which runs, how to replay it.

A `Comparison` prints the values: "3 of 64 elements differ beyond rtol=0.001 atol=1e-05; worst at ...".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from opmatrix.data.compare import Comparison
from opmatrix.data.truth import Judge
from opmatrix.records.verdict import WRONG, CaseResult, Verdict, percent
from opmatrix.spec import Model

Blamed = Literal["runtime", "kernel or reference", "data", "neither"]
"""What the reference evaluator shows to be wrong. It runs the model with reference.py in place of custom nodes, so that
only where the model has none it is a voice apart from the reference."""

_BLAMED: Mapping[Blamed, str] = {
    "runtime": "runs no reference.py here, and agrees with the expected output: ONNX Runtime is wrong",
    "kernel or reference": "agrees with the expected output: ",
    "data": "agrees with ONNX Runtime: the test data are stale or the reference has changed (python -m opmatrix data), "
    "or the model does not have the attributes of the case (python -m opmatrix export)",
    "neither": "agrees with neither: look at the model first, then at the kernel",
}


def two_voices(judge: Judge) -> str:
    """Return what follows from a difference between kernel and reference where no third voice is known."""
    if judge.precision != "declared dtype":
        return f"kernel or reference (in {judge.precision}) is wrong"
    why = f", compared in the {judge}" if judge.reason.startswith("in ") else ""  # a wider precision was tried
    return f"kernel or reference is wrong{why}"


# A kernel in torch.


def mismatch(subject: str, comparison: Comparison | str, *, replay: str) -> str:
    """Return the message of a mismatch, with the command that replays it."""
    return f"{subject}: {comparison}. Replay: {replay}"


def refused(subject: str, error: Exception, *, replay: str) -> str:
    """Return the message of a kernel that raises for a case."""
    return f"{subject}: the kernel rejects it: {error}. Replay: {replay}"


# A model in ONNX Runtime.


def differs(worst: Comparison, *, only: Sequence[str], blamed: Blamed, judge: Judge, ignored: str = "") -> str:
    """Return how runs differ from the expected output.

    `only` names the runs, where others agree. `judge` is the precision of the expected output. `ignored`, the message
    about ignored attributes, explains why the reference evaluator agrees with ONNX Runtime.
    """
    evaluator = f"agrees with ONNX Runtime: {ignored}" if ignored and blamed == "data" else _BLAMED[blamed]
    if blamed == "kernel or reference":
        evaluator += two_voices(judge)
    return f"{worst}{in_runs(only)}. The reference evaluator {evaluator}"


def in_runs(only: Sequence[str]) -> str:
    """Return the names of the runs that differ, "" where all do."""
    return f" (only in these runs: {'; '.join(only)})" if only else ""


def ignored_attributes(operator: str, model: Model, names: Sequence[str]) -> str:
    """Return the message about attributes that a lowering ignores, or "" for none."""
    if not names:
        return ""
    set_to = " and ".join(f"{n!r}, which model {model.name!r} sets to {model.attributes[n]!r}" for n in names)
    return (
        f"the lowering drops {set_to}: it emits the nodes of the default. Emit what computes it, or refuse it: "
        f"g.unsupported() in ops/{operator}/lowering.py, and `unsupported` in the model"
    )


def decomposition(operator: str) -> str:
    """Return the message about a decomposition that ONNX Runtime and the reference evaluator compute alike."""
    return (
        f"the nodes that decomposed() in ops/{operator}/lowering.py writes compute something else; correct them. Else "
        "the test data are stale (python -m opmatrix data), or the model does not hold the attributes of the case "
        "(python -m opmatrix export)"
    )


def _two(found: Comparison, words: str) -> str:
    """Return both values where two runs differ; `words` name the second with ``{}`` for its value."""
    return found.subject + (found.problem or f"at {found.worst} {found.expected}{words.format(found.actual)}")


def not_repeatable(setting: str, first: Comparison) -> str:
    return (
        f"two equal runs of one session ({setting}) give different numbers: {_two(first, ', then {}')}. The kernel "
        "keeps a state, or reads memory that it has not written"
    )


def threads_differ(first: Comparison) -> str:
    return (
        f"one thread and two give different numbers: {_two(first, ', then {}')}. The parts into which the kernel "
        "splits its work depend on each other"
    )


def in_place_differs(setting: str, first: Comparison) -> str:
    return (
        f"wrong where an output has the memory of an input, as its may_inplace allows ({setting}): "
        f"{_two(first, ', and {} in place')}. The kernel reads an element of the input after it has written that of "
        "the output; remove may_inplace, or read it before"
    )


def alone_differs(kept: str, first: Comparison) -> str:
    return (
        f"wrong where the node leaves out all optional outputs but {kept!r}: {_two(first, ', and {} without them')}. "
        "The kernel must compute each output that is there, whichever others are"
    )


def wrong_among_threads(found: Comparison | str) -> str:
    """Return the message of a run that differs, or fails, while other threads run the same session."""
    shown = _two(found, " alone, {} in a crowd") if isinstance(found, Comparison) else found
    return (
        f"right alone, and wrong while other threads run the same session: {shown}. The kernel shares a "
        "buffer between calls; make it local, or let ONNX Runtime allocate it"
    )


def enlarged(found: Comparison | str, size: str) -> Comparison | str:
    """Return a difference for `wrong_among_threads` with the size of inputs that are larger than those of a case."""
    begin = f"its inputs repeated to {size}: "
    return replace(found, subject=begin) if isinstance(found, Comparison) else begin + found


def evaluator_differs(evaluated: Comparison) -> str:
    return (
        f"ONNX Runtime gives the expected output, the reference evaluator does not: {evaluated}. The model holds "
        "something that ONNX Runtime overlooks, or the reference has changed since the test data were written"
    )


# A case that contradicts its declaration.


def unsupported(model: Model, reason: str) -> str:
    return f"{model.unsupported} ({reason})" if model.unsupported else reason


def runs_although_unsupported(model: Model) -> str:
    return f"declared unsupported ({model.unsupported}), but it runs. Remove that from its model"


def reads_although_unreadable(declared: str) -> str:
    return f"pipeline/opmatrix/project/cells.py says that {declared}, but it does. Measure it again with `doit probe`"


def published(version: int, detail: str) -> str:
    return f"a model of version {version} runs no more: {detail}"


# A verdict.


def detail(cases: Sequence[CaseResult], in_common: str = "") -> str:
    """Return the detail of a verdict: how many cases are wrong, the message of the first, and in a line of its own what
    the wrong ones have in common."""
    if not (wrong := _most_telling_first(cases)):
        return ""
    first = f"{len(wrong)} of {len(cases)} cases; {wrong[0].case}: {wrong[0].detail}"
    return "\n".join([first, *over_cases(in_common)])


def over_cases(in_common: str) -> list[str]:
    """Return the line of what the wrong cases have in common, or none."""
    return [f"Over all cases: {in_common}"] if in_common else []


def tells_who(message: str) -> bool:
    """Return whether a message names the one of three voices that is alone."""
    return " alone differ" in message


def _most_telling_first(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the wrong cases, first those that name the one of three voices that is alone."""
    return sorted((case for case in cases if case.outcome in WRONG), key=lambda case: not tells_who(case.detail))


def faults(found: Verdict) -> dict[str, str]:
    """Return one line per fault, by the names of the cases that have it."""
    by_detail: dict[str, list[str]] = {}
    for result in _most_telling_first(found.cases):
        by_detail.setdefault(result.detail, []).append(result.case)
    lines = {} if by_detail else {"": f"{found}: {found.detail}"}
    for fault, (case, *others) in by_detail.items():
        also = f" Also {', '.join(others)}." if others else ""
        lines[", ".join([case, *others])] = f"{found.case_name(case)}: {fault}.{also} Replay: {found.replay(case)}"
    return lines


def with_values(faults: Mapping[str, str], records: Sequence[Mapping[str, Any]], in_common: str = "") -> dict[str, str]:
    """Return faults by the names of their cases; the first has the values of its case below it, if they are known, and
    what the wrong cases have in common.

    `records` are those of `opmatrix.judge.mismatch`.
    """
    from opmatrix.judge import mismatch as mismatch_text  # which only a failing case needs

    known = {str(record["case"]): record for record in reversed(records)}
    for names, message in [*faults.items()][:1]:
        record = next((known[case] for case in names.split(", ") if case in known), None)
        lines = [*(mismatch_text.lines(record) if record else ()), *over_cases(in_common)]
        return {**faults, names: "\n  ".join([message, *lines])}
    return {}


def replay_lines(
    model: Path, data: Path, runs: Sequence[tuple[str, Comparison]], *, evaluated: Comparison, verified: bool
) -> Iterator[str]:
    """Yield the lines that a replayed case prints: per run the comparison, the error and the tolerance used."""
    yield f"model {model}\ndata  {data}"
    for name, c in runs:
        used = percent(c.tolerance_used)
        yield f"  {name + ':':<22} {c}; error {c.error:.2g}, {c.ulp:.3g} ULP, {used} of the limit"
    yield f"  reference evaluator:   {evaluated}"
    if verified:
        yield "verified"
