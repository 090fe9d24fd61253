"""Which verdicts of earlier runs still hold: those of cells that this run does not plan.

A report covers the cells that are asked for and the verdicts of earlier runs that still hold. Whether one holds is
known without planning its step: the journal has what it was made from, and what this run plans for the same operator
tells how that must be now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from doit.task import Task

from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.up_to_date import State
from opmatrix.matrix.cells import Cell, all_cells
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.step import Step, cell_step_name

# What a step's config may hold and a sibling's need not: it tells cells apart, and nothing of what they were made from.
_OWN = "once"


@dataclass(frozen=True, kw_only=True)
class EarlierVerdicts:
    """Paths of verdicts that hold, or that say that something failed; and the cells whose verdicts are out of date."""

    verdicts: tuple[Path, ...]
    stale: tuple[str, ...]


def valid_earlier_verdicts(layout: Paths, tasks: Sequence[Task], state: State) -> EarlierVerdicts:
    """Look at every verdict of an operator that this run plans, in a cell that it does not plan."""
    journal = _Journal(state, {task.name: task.step for task in tasks if isinstance(task, StepTask)})
    verdicts: list[Path] = []
    stale: dict[str, None] = {}
    for step in sorted(journal.unplanned(), key=lambda step: step.task):
        assert step.lowering and step.cell
        path = layout.verdict(step.operator, step.lowering, step.cell)
        if not path.is_file():
            continue
        if journal.holds(step) or _is_wrong(path):
            verdicts.append(path)
        else:
            stale[str(step.cell)] = None
    return EarlierVerdicts(verdicts=tuple(verdicts), stale=tuple(stale))


def _is_wrong(path: Path) -> bool:
    """Return whether a verdict is one that nobody may forget: it stays until its step has run again."""
    from opmatrix import verdict  # here, because a run with nothing to do pays for every import

    try:
        return verdict.read(path).outcome in verdict.WRONG
    except ValueError:
        return False


@dataclass(frozen=True)
class _Journal:
    state: State
    steps: Mapping[str, Step]

    @cached_property
    def siblings(self) -> Mapping[tuple[str, str, Lowering], Step]:
        """One export and one verification of each operator and lowering."""
        return {
            (step.group, step.operator, step.lowering): step
            for step in reversed([*self.steps.values()])
            if step.group in ("verify", "export") and step.lowering and step.cell
        }

    def unplanned(self) -> Iterator[Step]:
        """Yield the verifications that have run, in cells that this run does not plan."""
        others = {name for name in self.state.journal.steps if name.startswith("verify:")} - self.steps.keys()
        for cell in all_cells() if others else ():
            for (group, operator, lowering), sibling in self.siblings.items():
                if group == "verify" and f"verify:{cell_step_name(group, operator, lowering, cell)}" in others:
                    yield _in_cell(sibling, cell)

    def holds(self, step: Step) -> bool:
        """Return whether a step that this run does not plan would have nothing to do."""
        known = self.state.journal.detail(step.task)
        if self.state.journal.key(step.task) is None or not known or "config" not in known:
            return False
        return (
            _is_configured(step, json.loads(known["config"] or "{}"))
            and self.state.unchanged(known["inputs"])
            and self.state.unchanged(known["outputs"])
            and (step.group == "export" or self._is_exported(step))
        )

    def _is_exported(self, step: Step) -> bool:
        """Return whether the model is up to date; one that this run plans is by now."""
        assert step.lowering and step.cell
        sibling = self.siblings.get(("export", step.operator, step.lowering))
        if sibling is None:
            return False
        export = _in_cell(sibling, step.cell)
        return export.task in self.steps or self.holds(export)


def _in_cell(sibling: Step, cell: Cell) -> Step:
    """Return the step in another cell, as far as it is known without planning it: all but what it reads and writes."""
    assert sibling.lowering
    return replace(sibling, name=cell_step_name(sibling.group, sibling.operator, sibling.lowering, cell), cell=cell)


def _is_configured(step: Step, known: Mapping[str, Any]) -> bool:
    """Compare what both have: the versions of another environment are among the inputs."""
    now: Mapping[str, Any] = json.loads(step.config or "{}")
    return all(known[part] == now[part] for part in known.keys() & now.keys() if part != _OWN)
