"""`doit compat [OPERATOR ...]`: run operators in torch beyond eager mode, and print what works and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.exceptions import InvalidCommand
from doit.task import Task

from opmatrix.basics.errors import did_you_mean
from opmatrix.commands.run import Run
from opmatrix.engine.tasks import StepTask

GROUP = "compat"


class Compat(Run):
    """Run the steps of the group `compat`, which `doit` leaves out, and what they need."""

    name = GROUP
    doc_purpose = "what works beyond eager mode: torch.compile, AOTInductor, vmap, autocast, torch.func"
    doc_usage = "[OPERATOR ...]"
    doc_description = (
        "Runs each operator in torch.compile with dynamic sizes, a package of AOTInductor, torch.vmap, "
        "torch.autocast and torch.func, and compares the values with plain calls. A row works, or is refused with the "
        "reason. A result is kept until the operator or torch changes, and the next report has it. Without an "
        "operator: all of them."
    )

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        """Run the steps; print the rows of all that were asked for."""
        code = super().execute(params, [*args] or [GROUP])  # without a name doit takes its default tasks
        from rich.console import Console

        from opmatrix.records.verdict import read_check
        from opmatrix.report.terminal import show_compat

        records = []
        for task in self.task_list:
            if isinstance(task, StepTask) and task.name in self._asked() and task.step.verdict:
                with suppress(OSError, ValueError):
                    records.append(read_check(Path(task.step.verdict)))
        show_compat(records, Console())
        return code

    def selected(self, names: Sequence[str], tasks: Sequence[Task]) -> list[str]:
        """Return the steps of the operators `names`; the group for its own name. Raises InvalidCommand for another
        one."""
        if [*names] == [GROUP]:
            return [GROUP]
        steps = [task.step for task in tasks if isinstance(task, StepTask)]
        found = [(name, [s.task for s in steps if s.operator == name and s.group == GROUP]) for name in names]
        for name, own in found:
            if not own:
                known = dict.fromkeys(s.operator for s in steps if s.operator)
                if name in known:
                    raise InvalidCommand(f"{name} has no operator of its own in torch, so there is nothing to run")
                raise InvalidCommand(f"no operator {name!r}{did_you_mean(name, known)}; there is: {', '.join(known)}")
        return [task for _, own in found for task in own]

    def _asked(self) -> set[str]:
        chosen = {*(self.sel_tasks or ())}
        every = {task.name for task in self.task_list if isinstance(task, StepTask) and task.step.group == GROUP}
        return every if GROUP in chosen else every & chosen
