"""Commands that forecast a run: `doit why`, `doit list` and `doit info`. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from doit.cmd_base import DoitCmdBase
from doit.cmd_info import Info as DoitInfo
from doit.cmd_list import List as DoitList
from doit.cmd_list import opt_list_status
from doit.control import TaskControl
from doit.task import Task

from opmatrix.basics.errors import many, printable
from opmatrix.commands.base import CommandBase, select
from opmatrix.commands.state import removed_operators
from opmatrix.engine.forecast import Forecast, fate_of, forecast

_STATUS = opt_list_status | {
    "help": "print task status: (R)uns, (W)aits for a step before it and runs if what that writes changes, "
    "(U)p-to-date, (I)gnored, (E)rror: cannot run"
}


class Why(CommandBase, DoitCmdBase):
    """A dry run with reasons. doit 0.37 has no dry run (#48) and prints the reasons of one task only (#329)."""

    name = "why"
    doc_purpose = "print which steps would run, and why; nothing runs"
    doc_usage = "[TASK ...]"
    doc_description = (
        "One line per step that `doit [TASK ...]` would run: what has changed since it last succeeded, old and new. "
        "A line with 'after ..., if ... changes' is of a step that runs only if what a step before it writes differs."
    )

    def _execute(self) -> int:
        control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        forecasts = forecast(control.tasks, control.selected_tasks, self.dep_manager)
        for name, one in forecasts.items():
            if one.fate != "up-to-date":
                self.outstream.write(f"{printable(name + ': ' + _reasons(one))}\n")
        for operator in removed_operators(self._paths, self.task_list, self.dep_manager.journal):
            self.outstream.write(f"{operator} is no longer in ops/: what was built for it would be removed\n")
        self.outstream.write(_summary(forecasts) + _fetched(self.dep_manager.journal.origins(), forecasts) + "\n")
        self.dep_manager.close()
        return 0


def _reasons(one: Forecast) -> str:
    prefix = "cannot run: " if one.fate == "error" else "left out: " if one.fate == "ignore" else ""
    return prefix + "; ".join(one.reasons)


def _summary(forecasts: Mapping[str, Forecast]) -> str:
    fates = [one.fate for one in forecasts.values()]
    steps = many(len(fates), "step")
    words = {
        "run": "would run",
        "wait": "would run if what they read changes",
        "error": "cannot run",
        "ignore": "left out",
        "up-to-date": "up to date",
    }
    counts = [f"{fates.count(fate)} {text}" for fate, text in words.items() if fate in fates]
    return f"{steps}, all up to date" if set(fates) <= {"up-to-date"} else f"{steps}: {', '.join(counts)}"


def _fetched(origins: Mapping[str, tuple[str, str | None]], forecasts: Mapping[str, Forecast]) -> str:
    """Return how many steps that are up to date did not run here, and where they did."""
    urls = [origins[name][0] for name, one in forecasts.items() if one.fate == "up-to-date" and name in origins]
    return f"; {len(urls)} of them from the shared cache {', '.join(dict.fromkeys(urls))}" if urls else ""


class List(CommandBase, DoitList):
    """Print a status that considers what earlier steps are about to write; doit 0.37 considers each task alone."""

    name = "list"
    doc_purpose = "the stages; --all for every step, --status for which would run"
    STATUS_MAP: ClassVar[Mapping[str, str]] = DoitList.STATUS_MAP | {"wait": "W"}
    cmd_options = tuple(_STATUS if option["name"] == "status" else option for option in DoitList.cmd_options)

    @cached_property
    def _forecasts(self) -> Mapping[str, Forecast]:
        tasks = TaskControl(self.task_list).tasks
        return forecast(tasks, tasks, self.dep_manager)

    def _print_task(self, template: str, task: Task, status: bool, list_deps: bool, tasks: Mapping[str, Task]) -> None:
        letter = {"status": self.STATUS_MAP[fate_of(task, self._forecasts)]} if status else {}
        self.outstream.write(template.format(name=task.name, doc=task.doc, **letter))
        if list_deps:
            self.outstream.write("".join(f" -  {path}\n" for path in sorted(task.file_dep)) + "\n")


class Info(CommandBase, DoitInfo):
    """Print in addition how long the step last took, and where it ran."""

    name = "info"
    one_task = True
    doc_purpose = "files that a step reads and writes, whether it would run, and how long it last took"
    doc_usage = "STEP"

    def _execute(self, pos_args: Sequence[str], hide_status: bool = False) -> Any:
        code = super()._execute(pos_args, hide_status)
        if (took := self.dep_manager.journal.durations().get(pos_args[0])) is not None:
            self.outstream.write(f"\n{'last took':11s}: {took:.2f} s\n")
        if origin := self.dep_manager.journal.origins().get(pos_args[0]):
            signed = f", signed by {origin[1]}" if origin[1] else ""
            self.outstream.write(f"{'it ran':11s}: elsewhere; from the shared cache {origin[0]}{signed}\n")
        return code
