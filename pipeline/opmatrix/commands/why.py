"""`doit why [TASK ...]`: print what would run, and why. A doit command."""

from __future__ import annotations

from collections.abc import Mapping

from doit.cmd_base import DoitCmdBase

from opmatrix.commands.base import CommandBase, end_with_pipe
from opmatrix.commands.task_selection import select
from opmatrix.engine.forecast import Forecast, forecast
from opmatrix.engine.remove_stale import removed_operators
from opmatrix.errors import many


class Why(CommandBase, DoitCmdBase):
    """A dry run with reasons. doit 0.37 has no dry run (#48) and prints the reasons of one task only (#329)."""

    name = "why"
    doc_purpose = "say which steps would run, and why; nothing runs"
    doc_usage = "[TASK ...]"
    doc_description = (
        "One line per step that `doit [TASK ...]` would run: what has changed since it last succeeded, old and new. "
        "A line with 'after ..., if ... changes' is of a step that runs only if what a step before it writes differs."
    )

    def _execute(self) -> int:
        end_with_pipe()
        control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        forecasts = forecast(control.tasks, control.selected_tasks, self.dep_manager)
        for name, one in forecasts.items():
            if one.fate != "up-to-date":
                self.outstream.write(f"{name}: {_reasons(one)}\n")
        for operator in removed_operators(self._paths, self.task_list, self.dep_manager.journal):
            self.outstream.write(f"{operator} is no longer in ops/: what was built for it would be removed\n")
        self.outstream.write(_summary(forecasts) + "\n")
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
