"""Commands on what earlier runs left: `doit clean`, `doit forget` and `doit ignore`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_clean import Clean as DoitClean
from doit.cmd_forget import Forget as DoitForget
from doit.cmd_ignore import Ignore as DoitIgnore
from doit.task import Task

from opmatrix.basics.errors import many
from opmatrix.commands.base import LockedCommand
from opmatrix.engine.remove_stale import remove
from opmatrix.engine.tasks import StepTask


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
