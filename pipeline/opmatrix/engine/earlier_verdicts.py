"""Select the verdicts of earlier runs that are still valid, in cells that this run does not plan, for the report.

The step of such a verdict is not planned. Its verdict is valid if its files are unchanged and its recorded
configuration equals that of a planned step of the same operator and lowering.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from doit.task import Task

from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.up_to_date import State
from opmatrix.matrix.cells import Cell, all_cells
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.step import Step, cell_step_name

# The part of a step's configuration in which cells may differ.
_PER_CELL = "once"


@dataclass(frozen=True, kw_only=True)
class EarlierVerdicts:
    """Paths of verdicts that are valid or that failed, and the cells whose other verdicts are out of date."""

    verdicts: tuple[Path, ...]
    stale: tuple[str, ...]


def valid_earlier_verdicts(paths: Paths, tasks: Sequence[Task], state: State) -> EarlierVerdicts:
    """Check each verdict of an operator that this run plans, in a cell that it does not plan."""
    journal = _Journal(state, {task.name: task.step for task in tasks if isinstance(task, StepTask)})
    verdicts: list[Path] = []
    stale: dict[str, None] = {}
    for step in sorted(journal.unplanned(), key=lambda step: step.task):
        assert step.lowering and step.cell
        path = paths.verdict(step.operator, step.lowering, step.cell)
        if not path.is_file():
            continue
        if journal.is_valid(step) or _is_wrong(path):
            verdicts.append(path)
        else:
            stale[str(step.cell)] = None
    return EarlierVerdicts(verdicts=tuple(verdicts), stale=tuple(stale))


def _is_wrong(path: Path) -> bool:
    """Return whether a verdict failed. Such a verdict stays in the report until its step has run again."""
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
        """One planned export and one planned verification of each operator and lowering."""
        return {
            (step.group, step.operator, step.lowering): step
            for step in reversed([*self.steps.values()])
            if step.group in ("verify", "export") and step.lowering and step.cell
        }

    def unplanned(self) -> Iterator[Step]:
        """Yield the verifications in the journal in cells that this run does not plan."""
        others = {name for name in self.state.journal.steps if name.startswith("verify:")} - self.steps.keys()
        for cell in all_cells() if others else ():
            for (group, operator, lowering), sibling in self.siblings.items():
                if group == "verify" and f"verify:{cell_step_name(group, operator, lowering, cell)}" in others:
                    yield _in_cell(sibling, cell)

    def is_valid(self, step: Step) -> bool:
        """Return whether a step that this run does not plan would be up to date."""
        known = self.state.journal.detail(step.task)
        if self.state.journal.key(step.task) is None or not known or "config" not in known:
            return False
        before, now = json.loads(known["config"] or "{}"), json.loads(step.config or "{}")
        return (
            # The parts that both have. The versions of another environment are among the inputs instead.
            all(before[part] == now[part] for part in before.keys() & now.keys() if part != _PER_CELL)
            and self.state.unchanged(known["inputs"])
            and self.state.unchanged(known["outputs"])
            and (step.group == "export" or self._is_exported(step))
        )

    def _is_exported(self, step: Step) -> bool:
        """Return whether the model is up to date. If this run plans its export, that has run by now."""
        assert step.lowering and step.cell
        sibling = self.siblings.get(("export", step.operator, step.lowering))
        if sibling is None:
            return False
        export = _in_cell(sibling, step.cell)
        return export.task in self.steps or self.is_valid(export)


def _in_cell(sibling: Step, cell: Cell) -> Step:
    """Return the step of another cell, with the sibling's inputs and outputs, which must not be used."""
    assert sibling.lowering
    return replace(sibling, name=cell_step_name(sibling.group, sibling.operator, sibling.lowering, cell), cell=cell)
