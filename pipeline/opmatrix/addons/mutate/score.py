"""The score of an operator's mutants, and its survivors as a person reads them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.addons.mutate.mutant import Mark, Mutant, as_toml
from opmatrix.addons.mutate.result import Result
from opmatrix.addons.mutate.run import Campaign
from opmatrix.addons.mutate.scores import MutationScore
from opmatrix.basics.errors import many
from opmatrix.basics.files import sha256
from opmatrix.report.markdown import percent


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What became of the mutants that were tried: `results` and `marks` by their keys. `total`: how many there are."""

    mutants: Sequence[Mutant]
    results: Mapping[str, Result]
    marks: Mapping[str, Mark]
    total: int
    seed: str

    @property
    def survivors(self) -> list[Mutant]:
        """Those that survived and have no mark."""
        return [m for m in self.mutants if self.results[m.key].outcome == "survived" and m.key not in self.marks]

    @property
    def marked(self) -> list[Mutant]:
        """Those that survived and have one."""
        return [m for m in self.mutants if self.results[m.key].outcome == "survived" and m.key in self.marks]


def measure(campaign: Campaign, tried: Tried) -> MutationScore:
    """Return the score. A mark takes a survivor out of it; a mark of a killed mutant does nothing."""
    results = [tried.results[mutant.key] for mutant in tried.mutants]
    outcomes = Counter(result.outcome for result in results)
    root = campaign.paths.root
    return MutationScore(
        op=campaign.operator.name,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        mutants=tried.total,
        tried=len(results),
        seed=tried.seed,
        killed=outcomes["killed"],
        survived=len(tried.survivors),
        equivalent=outcomes["equivalent"],
        invalid=outcomes["invalid"],
        stopped=outcomes["stopped"],
        marked=len(tried.marked),
        gates=dict(Counter(shown_gate(result) for result in results if result.outcome == "killed").most_common()),
        survivors=tuple(f"{m.path}:{m.line}: {m.kind}: {m.change}" for m in tried.survivors),
        files={path: sha256(root / path) for path in dict.fromkeys(mutant.path for mutant in tried.mutants)},
    )


def shown_gate(result: Result) -> str:
    """Return the gate of a result, with the part of register."""
    return f"{result.gate} {result.part}" if result.part else result.gate


def shown(mutant: Mutant, result: Result) -> str:
    """Return one line about a mutant that was tried."""
    by = f" by {shown_gate(result)}" if result.outcome == "killed" else ""
    case = f", {result.case}" if result.case and by else ""
    return f"{result.outcome}{by}{case}: {mutant.path}:{mutant.line} {mutant.kind}: {mutant.change}"


def report(campaign: Campaign, tried: Tried, score: MutationScore, *, cpu: float) -> Iterator[str]:
    """Yield the lines of the score: the survivors first, the number last. `cpu`: CPU seconds that it took."""
    for mutant in tried.survivors:
        yield ""
        yield mutant.diff(campaign.text(mutant)).rstrip()
        yield "  Add a case that tells it from the code as it is, or simplify the code. If no input can, mark it in"
        yield f"  ops/{campaign.operator.name}/mutants.toml:"
        yield from (f"    {line}" for line in as_toml(mutant).splitlines())
    for mutant in tried.marked:
        yield f"marked: {mutant.path}:{mutant.line} {mutant.kind}: {mutant.change}: {tried.marks[mutant.key].reason}"
    for mutant in tried.mutants:
        if (result := tried.results[mutant.key]).outcome == "stopped":
            yield f"stopped in {result.gate}: {mutant.path}:{mutant.line} {mutant.kind}: {mutant.change}: {result.why}"
    yield ""
    sample = f", of {score.mutants}, seed {score.seed}" if score.tried < score.mutants else ""
    yield f"{score.op}: {many(score.tried, 'mutant')} tried{sample}, {cpu:.0f} CPU s"
    by_gate = ", ".join(f"{count} by {gate}" for gate, count in score.gates.items())
    yield f"  killed      {score.killed}{f': {by_gate}' if by_gate else ''}"
    yield f"  survived    {score.survived}"
    left = {"equal object code": score.equivalent, "do not compile": score.invalid}
    left |= {"over a limit of time or memory": score.stopped, "marked by hand": score.marked}
    yield f"  not counted {', '.join(f'{count} {why}' for why, count in left.items() if count) or 0}"
    yield f"score of {score.op}: {percent(score.score)}"
