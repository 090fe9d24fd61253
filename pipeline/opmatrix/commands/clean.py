"""`doit clean [TASK ...]`: remove what steps wrote, and print it. doit's `clean` command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_clean import Clean as DoitClean
from doit.task import Task

from opmatrix.commands.base import LockedCommand, end_with_pipe
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.remove_stale import remove
from opmatrix.errors import many


class Clean(LockedCommand, DoitClean):
    """Without a task, also remove what no step lists, such as objects and logs."""

    name = "clean"
    doc_purpose = "remove what steps have written"
    doc_description = "Without a task, everything under build/ goes."

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        self._everything = not args
        return super().execute(params, args)

    def clean_tasks(self, tasks: Iterable[Task], dryrun: bool, cleanforget: bool) -> None:
        if dryrun:
            end_with_pipe()
        verb = "would remove" if dryrun else "removed"
        for task in {t.name: t for t in tasks if isinstance(t, StepTask)}.values():
            there = [path for path in (*map(Path, task.step.writes), self._paths.log(task.name)) if path.is_file()]
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
