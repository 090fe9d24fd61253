"""Divide the cells and checks of a run into parts of equal cost, for `doit --shard 2/5`.

Machines that share nothing but the sources compute the same parts: a part depends on the names of the steps and on
seconds that were measured once (`_SECONDS`), never on what a machine measured. The cells are in one order, and the
order is cut where the sum of their seconds reaches the next part. So a further case moves no cell, and a further
operator few.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from opmatrix.basics.errors import UsageError
from opmatrix.basics.version import numbers
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step, read_name

# CPU seconds of a step, by its group, for exports also by exporter: the mean of this repository's steps with torch 2.13
# and ONNX Runtime 1.31. Only their ratios count.
_SECONDS: Mapping[str, float] = {
    "compat": 15,
    "compile": 1.3,
    "draw-inputs": 0.7,
    "export dynamo": 0.5,
    "export legacy": 0.13,
    "probe": 5,
    "register": 0.3,
    "sanitize": 30,
    "verify": 0.09,
}
_OTHER = 0.05  # of a step of another group
_ALONE = 3.8  # of a library that is compiled for one torch, with its C++ ABI
_SERVERS = 3.7  # of the servers of one torch
# A cut may move by this share of a part to the border between two versions of torch, since a part with both makes the
# environments of both.
_MOVE = 0.05

_Place = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Part `number`, from 1 on, of `of` parts. It prints as ``2/5``; `parse` reads that."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that prints as `text`. Raises UsageError."""
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"--shard {text!r}: write which part of how many, such as 2/5; the first of five is 1/5")
        return cls(number=int(found[1]), of=int(found[2]))


def own_verdicts(paths: Paths, shard: str) -> tuple[Shard, frozenset[str]]:
    """Return the shard, and the verdict files that the last `doit --shard` was about. Raises UsageError."""
    try:
        return Shard.parse(shard), frozenset(paths.shard_list.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError as error:
        raise UsageError(f"--shard {shard}: no shard ran here. Run: doit --shard {shard}") from error


def targets(chosen: Mapping[str, Step], needs: Mapping[str, Iterable[str]]) -> list[Step]:
    """Return the steps that a run divides: of those that are `chosen`, by task, each with a verdict, and each that no
    other one needs. `needs`: the tasks that each task depends on. Any other step runs wherever it is needed."""
    needed = {name for task in chosen for name in needs[task]}
    return [step for task, step in chosen.items() if step.verdict or task not in needed]


def divide(steps: Iterable[Step], *, of: int, needs: Mapping[str, Iterable[str]]) -> list[list[Step]]:
    """Return `of` parts of the steps, each step but the joint ones in one of them. `needs`: as of `targets`.

    What shares an exported model is in one part. The order of cells is torch, exporter, opset, operator: a part has few
    versions of torch, and each part has cells of each operator, so that a slow operator makes no part slower than the
    others.
    """
    units: dict[_Place, list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.task):
        if not step.is_joint:
            units.setdefault(_place(step), []).append(step)
    places = sorted(units)
    ends = [0.0, *accumulate(_seconds(units, needs))]
    borders = [i for i, (a, b) in enumerate(pairwise(places), start=1) if a[0] != b[0]]
    cuts = [0, *(_cut(ends, borders, at=ends[-1] * part / of, within=_MOVE * ends[-1] / of) for part in range(1, of)),
            len(places)]  # fmt: skip
    return [[step for place in places[a:b] for step in units[place]] for a, b in pairwise(cuts)]


def _cut(ends: Sequence[float], borders: Sequence[int], *, at: float, within: float) -> int:
    """Return the number of units whose seconds sum up to about `at`: a number of `borders` if one is near enough."""

    def distance(number: int) -> float:
        return abs(ends[number] - at)

    near = [number for number in borders if distance(number) <= within]
    right = bisect_left(ends, at)
    return min(near or {max(0, right - 1), min(right, len(ends) - 1)}, key=lambda number: (distance(number), number))


def _place(step: Step) -> _Place:
    """Return the place of a step in the order of cells, which steps that belong together share."""
    torch = step.cell.torch if step.cell else step.check.torch if step.check else None
    exported = (step.cell.exporter, step.cell.opset) if step.cell else ("", 0)
    return (numbers(torch) if torch else (), *exported, step.operator or step.task)


def _seconds(units: Mapping[_Place, Sequence[Step]], needs: Mapping[str, Iterable[str]]) -> Iterator[float]:
    """Yield the seconds of the steps of each place, in the order of places, with the exports that its cells need, the
    libraries that its checks need for their torch alone, and, with the first of a torch, the servers of that torch."""
    torch: object = ()
    for place in sorted(units):
        steps = units[place]
        exported = {step.lowering: step.cell.exporter for step in steps if step.group == "verify" and step.cell}
        kinds = [*(f"export {exporter}" for exporter in exported.values()), *(step.group for step in steps)]
        libraries = {read_name(task) for step in steps if not step.cell for task in needs.get(step.task, ())}
        alone = [name for name in libraries if name.group == "compile" and name.where]
        begins, torch = place[0] != torch, place[0]
        yield sum(_SECONDS.get(kind, _OTHER) for kind in kinds) + len(alone) * _ALONE + begins * _SERVERS
