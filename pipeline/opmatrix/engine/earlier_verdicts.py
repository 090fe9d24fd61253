"""Select verdicts and check records of earlier runs for the report, of cells and versions of torch that this run does
not plan: those whose files are unchanged, and whose recorded configuration equals that of a planned step of the same
operator and lowering."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from doit.task import Task

from opmatrix.engine.tasks import StepTask, is_reported_on_demand
from opmatrix.engine.up_to_date import State
from opmatrix.project.cells import Cell, all_cells
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step, TaskName, cell_step_name, read_name
from opmatrix.spec import Lowering

# The part of a step's configuration in which cells may differ.
_PER_CELL = "once"
# The parts of a compile step's configuration that its libraries for other versions of torch share.
_PER_COMPILER = ("code", "compiler", "ort_headers", "headers")


def valid_earlier_verdicts(paths: Paths, tasks: Sequence[Task], state: State) -> tuple[list[Path], list[str]]:
    """Check each verdict and record of an operator that this run plans, in a cell or a torch that it does not plan, and
    each check that `doit` leaves out, which an earlier run may have made. Return those that are valid or that failed,
    and the cells and checks whose other verdicts are out of date."""
    journal = _Journal(paths, state, {task.name: task.step for task in tasks if isinstance(task, StepTask)})
    verdicts: list[Path] = []
    stale: dict[str, None] = {}
    on_demand = filter(is_reported_on_demand, journal.steps.values())
    for step in sorted([*journal.unplanned(), *on_demand], key=lambda step: step.task):
        if step.lowering and step.cell:
            path, name = paths.verdict(step.operator, step.lowering, step.cell), str(step.cell)
        else:
            assert step.check
            path, name = paths.check_record(*step.check), str(step.check)
        if not path.is_file():
            continue
        if journal.is_valid(step) or _is_wrong(path):  # a wrong one stays until its step has run again
            verdicts.append(path)
        else:
            stale[name] = None
    return verdicts, [*stale]


def _is_wrong(path: Path) -> bool:
    from opmatrix.records import verdict  # here, because a run with nothing to do pays for every import

    try:
        return verdict.read_any(path).outcome in verdict.WRONG
    except ValueError:
        return False


@dataclass(frozen=True)
class _Journal:
    paths: Paths
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
        """Yield the verifications and checks in the journal whose cell or torch this run does not plan."""
        others = {task: read_name(task) for task in self.state.journal.steps if task not in self.steps}
        for cell in all_cells() if any(name.group == "verify" for name in others.values()) else ():
            for (group, operator, lowering), sibling in self.siblings.items():
                if group == "verify" and f"verify:{cell_step_name(group, operator, lowering, cell)}" in others:
                    yield _in_cell(sibling, cell)
        checks = {read_name(step.task)[:2]: step for step in self.steps.values() if step.check and step.check.torch}
        for name in others.values():
            if name.where and (planned := checks.get(name[:2])):
                yield _in_torch(planned, name)

    def is_valid(self, step: Step) -> bool:
        """Return whether a step that this run does not plan would be up to date."""
        known = self.state.journal.detail(step.task)
        if self.state.journal.key(step.task) is None or not known or "config" not in known:
            return False
        return (
            self._is_unchanged(known, step)
            and (step.group != "verify" or self._is_exported(step, step.cell))
            and (not step.check or self._is_made(step, known["inputs"]))
        )

    def _is_unchanged(self, recorded: Mapping[str, Any], step: Step, *, only: Collection[str] = ()) -> bool:
        """Return whether the files of a recorded step are unchanged and its configuration equals that of `step`, in the
        parts `only` or in all that both have. The versions of another environment are among the inputs instead."""
        before, now = json.loads(recorded["config"] or "{}"), json.loads(step.config or "{}")
        both = before.keys() & now.keys() - {_PER_CELL}
        return (
            all(before[part] == now[part] for part in both if not only or part in only)
            and self.state.unchanged(recorded["inputs"])
            and self.state.unchanged(recorded["outputs"])
        )

    def _is_made(self, step: Step, inputs: Iterable[str]) -> bool:
        """Return whether the files that other steps made only for this check's versions of torch are up to date: the
        exports that it compares, and a library that is compiled for one torch."""
        assert step.check
        manifests = {self.state.relative(str(self.paths.manifest(step.operator, step.lowering or "", cell))): cell
                     for cell in all_cells()} if step.lowering else {}  # fmt: skip
        exported = all(self._is_exported(step, manifests[path]) for path in inputs if path in manifests)
        known = self.state.journal.detail(f"compile:{step.operator}@torch{step.check.torch}")
        planned = self.steps.get(f"compile:{step.operator}")
        return exported and (not known or not planned or self._is_unchanged(known, planned, only=_PER_COMPILER))

    def _is_exported(self, step: Step, cell: Cell | None) -> bool:
        """Return whether the model is up to date. If this run plans its export, that has run by now."""
        assert step.lowering and cell
        sibling = self.siblings.get(("export", step.operator, step.lowering))
        if sibling is None:
            return False
        export = _in_cell(sibling, cell)
        return export.task in self.steps or self.is_valid(export)


def _in_cell(sibling: Step, cell: Cell) -> Step:
    """Return the step of another cell, with the sibling's inputs and outputs, which must not be used."""
    assert sibling.lowering
    return replace(sibling, name=cell_step_name(sibling.group, sibling.operator, sibling.lowering, cell), cell=cell)


def _in_torch(sibling: Step, name: TaskName) -> Step:
    """Return the step of the same check in other versions of torch, with the sibling's inputs and outputs, which must
    not be used."""
    assert sibling.check
    check = sibling.check._replace(torch=name.where.removeprefix("torch"))
    return replace(sibling, name=f"{name.subject}@{name.where}", check=check)
