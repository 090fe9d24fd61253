"""Commands on what earlier runs left: `doit clean`, `doit forget` and `doit ignore`.

The outputs of operators whose folder in ops/ was deleted: each run removes them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_clean import Clean as DoitClean
from doit.cmd_forget import Forget as DoitForget
from doit.cmd_ignore import Ignore as DoitIgnore
from doit.task import Task

from opmatrix.basics.errors import many
from opmatrix.commands.base import LockedCommand
from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import DIST, ENVIRONMENT, StepTask
from opmatrix.project.paths import Paths
from opmatrix.records.step import read_name

# Groups whose steps have the name of an environment or of a kind of wheel instead of an operator.
_NO_OPERATORS = (ENVIRONMENT, "probe", DIST)


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


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
