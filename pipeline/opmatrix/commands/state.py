"""Commands on the state of steps: `doit clean`, `forget` and `ignore`; `why`, `list` and `info`, which run nothing.

The outputs of operators whose folder in ops/ was deleted: each run removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from doit.cmd_base import DoitCmdBase
from doit.cmd_clean import Clean as DoitClean
from doit.cmd_forget import Forget as DoitForget
from doit.cmd_ignore import Ignore as DoitIgnore
from doit.cmd_info import Info as DoitInfo
from doit.cmd_list import List as DoitList
from doit.cmd_list import opt_list_status
from doit.control import TaskControl
from doit.task import Task

from opmatrix.basics.errors import many, printable
from opmatrix.basics.files import remove
from opmatrix.commands.base import CommandBase, LockedCommand, select
from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import DIST, ENVIRONMENT, StepTask
from opmatrix.project.paths import Paths
from opmatrix.records.step import read_name

if TYPE_CHECKING:
    from opmatrix.engine.forecast import Forecast

# Groups whose steps have the name of an environment or of a kind of wheel instead of an operator.
_NO_OPERATORS = (ENVIRONMENT, "probe", DIST)
_STATUS = opt_list_status | {
    "help": "print task status: (R)uns, (W)aits for a step before it and runs if what that writes changes, "
    "(U)p-to-date, (I)gnored, (E)rror: cannot run"
}


class Clean(LockedCommand, DoitClean):
    """Without a task, also remove what no step lists, such as objects and logs."""

    name = "clean"
    doc_purpose = "remove what steps have written"
    doc_description = "Without a task, everything under build/ goes."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        self._everything = not args
        return super().execute(params, args)

    def clean_tasks(self, tasks: Iterable[Task], dryrun: bool, cleanforget: bool) -> None:
        verb = "would remove" if dryrun else "removed"
        for task in {t.name: t for t in tasks if isinstance(t, StepTask)}.values():
            outputs = (*map(Path, (*task.step.writes, *task.step.links)), self._paths.log(task.name))
            there = [path for path in outputs if path.is_file() or path.is_symlink()]
            if there:
                self.outstream.write(f"{task.name}: {verb} {many(len(there), 'file')}\n")
            if not dryrun:
                _remove_files(there, self._paths.build)
                if cleanforget:
                    self.dep_manager.remove(task.name)
        for path in sorted(self._paths.build.iterdir()) if self._everything else ():
            if not path.name.startswith((self._paths.lock.name, self._paths.state.name)):
                self.outstream.write(f"{verb} {path.relative_to(self._paths.root)}\n")
                if not dryrun:
                    remove(path)
        self.dep_manager.close()


def _remove_files(files: Iterable[Path], top: Path) -> None:
    """Remove files, and the folders below `top` that become empty."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == top or top not in folder.parents or any(folder.iterdir()):
                break
            folder.rmdir()


class Forget(LockedCommand, DoitForget):
    """Without a task, forget all; doit 0.37 raises TypeError then."""

    name = "forget"
    doc_purpose = "make steps run again, also where nothing has changed"
    doc_description = "Without a task, all are forgotten."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        params["forget_all"] = params["forget_all"] or not args
        return super().execute(params, args)


class Ignore(LockedCommand, DoitIgnore):
    """Take the lock, which doit does not."""

    name = "ignore"
    doc_purpose = "leave steps out of every run, until `doit forget` takes them back"
    doc_usage = "TASK ..."


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
        from opmatrix.engine.forecast import forecast  # no run needs it before a step runs

        control = select(self.task_list, self.sel_tasks, commands=self.loader.cmd_names)
        forecasts = forecast(control.tasks, control.selected_tasks, self.dep_manager)
        for name, one in forecasts.items():
            if one.fate != "up-to-date":
                prefix = {"error": "cannot run: ", "ignore": "left out: "}.get(one.fate, "")
                self.outstream.write(f"{printable(f'{name}: {prefix}' + '; '.join(one.reasons))}\n")
        for operator in removed_operators(self._paths, self.task_list, self.dep_manager.journal):
            self.outstream.write(f"{operator} is no longer in ops/: what was built for it would be removed\n")
        self.outstream.write(_summary(forecasts) + _fetched(self.dep_manager.journal.origins(), forecasts) + "\n")
        self.dep_manager.close()
        return 0


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
        from opmatrix.engine.forecast import forecast  # as above

        tasks = TaskControl(self.task_list).tasks
        return forecast(tasks, tasks, self.dep_manager)

    def _print_task(self, template: str, task: Task, status: bool, list_deps: bool, tasks: Mapping[str, Task]) -> None:
        letter = {}
        if status:
            from opmatrix.engine.forecast import fate_of

            letter["status"] = self.STATUS_MAP[fate_of(task, self._forecasts)]
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


def collect_removed(paths: Paths, tasks: Sequence[Task], journal: Journal) -> list[str]:
    """Remove the outputs of each operator whose folder in ops/ is gone, and return a message for each. Outputs of steps
    that are only not planned this time, as by `doit opsets=18`, stay."""
    messages = []
    for operator, steps in removed_operators(paths, tasks, journal).items():
        for path in paths.operator_files(operator):
            remove(path)
        journal.erase(steps)
        messages.append(f"{operator} is no longer in {paths.ops.name}/: what was built for it is removed")
    return messages


def removed_operators(paths: Paths, tasks: Sequence[Task], journal: Journal) -> dict[str, list[str]]:
    """Return the operators whose folder is gone, each with its steps in the journal."""
    present = {task.step.operator for task in tasks if isinstance(task, StepTask)}
    gone: dict[str, list[str]] = {}
    for task in journal.steps:
        # A step of an operator that is gone is not planned, so its name in the journal is all that is known.
        name = read_name(task)
        if name.group not in _NO_OPERATORS and name.operator not in present and not paths.op(name.operator).exists():
            gone.setdefault(name.operator, []).append(task)
    return gone
