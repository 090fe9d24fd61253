"""The messages of failing cases, for register, verify and the report: what differs, in which runs, how to replay it.

A `Comparison` prints the values: "3 of 64 elements differ beyond rtol=0.001 atol=1e-05; worst at ...". Of three voices,
the reference, the kernel and vectors from elsewhere, the one that is alone is blamed; of two, neither is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmatrix.data.compare import Comparison
from opmatrix.data.truth import Judge
from opmatrix.records.verdict import WRONG, CaseResult, Verdict


def two_voices(judge: Judge) -> str:
    """Return what follows from a difference between kernel and reference where no third voice is known."""
    if judge.precision != "declared dtype":
        return f"kernel or reference (in {judge.precision}) is wrong"
    why = f", compared in the {judge}" if judge.reason.startswith("in ") else ""  # a wider precision was tried
    return f"kernel or reference is wrong{why}"


@dataclass(frozen=True, kw_only=True)
class Voices:
    """How the voices of one case agree, pair by pair: each the comparison of the output that differs most."""

    reference_kernel: Comparison
    reference_vectors: Comparison
    kernel_vectors: Comparison
    source: str  # of the vectors

    def __str__(self) -> str:
        """Return the worst comparison and who is alone, or "" where all agree."""
        vectors = f"the vectors ({self.source})"
        pairs = (
            (self.reference_kernel, "reference", "kernel", vectors),
            (self.reference_vectors, "reference", vectors, "kernel"),
            (self.kernel_vectors, "kernel", vectors, "reference"),
        )
        wrong = [pair for pair in pairs if not pair[0].ok]
        if not wrong:
            return ""
        found, first, second, third = wrong[0]
        if len(wrong) == 3:
            return f"{found}. Reference, kernel and {vectors} all differ"
        if len(wrong) == 1:
            verb = "agree" if third == vectors else "agrees"
            return f"{found}. {first.capitalize()} and {second} disagree; {third} {verb} with both"
        ((alone,),) = [{*wrong[0][1:3]} & {*wrong[1][1:3]}]
        found = wrong[1][0]  # with the vectors, whose value is then the expected one
        others = " and ".join(sorted({first, second, third} - {alone}, key=lambda voice: (voice == vectors, voice)))
        if alone == vectors:
            return f"{found}. The vectors ({self.source}) alone differ: {others} agree"
        return f"{found}. The {alone} alone differs: {others} agree"


# A kernel in torch.


def mismatch(subject: str, comparison: Comparison | str, *, replay: str) -> str:
    """Return the message of a mismatch, with the command that replays it."""
    return f"{subject}: {comparison}. Replay: {replay}"


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


def faults(verdict: Verdict) -> dict[str, str]:
    """Return one line per fault, by the names of the cases that have it."""
    by_detail: dict[str, list[str]] = {}
    for result in _most_telling_first(verdict.cases):
        by_detail.setdefault(result.detail, []).append(result.case)
    lines = {} if by_detail else {"": f"{verdict}: {verdict.detail}"}
    for fault, (case, *others) in by_detail.items():
        also = f" Also {', '.join(others)}." if others else ""
        lines[", ".join([case, *others])] = f"{verdict.case_name(case)}: {fault}.{also} Replay: {verdict.replay(case)}"
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
