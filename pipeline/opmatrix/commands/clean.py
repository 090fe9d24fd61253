"""`doit clean [TASK ...]`: remove what steps wrote, and say so. doit's `clean` command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_clean import Clean as DoitClean
from doit.task import Task

from opmatrix.commands.base import CommandBase, quiet_pipe
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.lock import hold
from opmatrix.engine.remove_stale import remove
from opmatrix.project.paths import Paths


class Clean(CommandBase, DoitClean):
    """Without a task: everything under build/, also what no step names, such as objects and logs."""

    name = "clean"
    doc_purpose = "remove what steps have written"
    doc_description = "Without a task, everything under build/ goes."

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        self._everything = not args
        with hold(Paths(Path.cwd()).lock):
            return int(super().execute(params, args) or 0)

    def clean_tasks(self, tasks: Iterable[Task], dryrun: bool, cleanforget: bool) -> None:
        if dryrun:
            quiet_pipe()
        layout = Paths(Path.cwd())
        verb = "would remove" if dryrun else "removed"
        for task in {t.name: t for t in tasks if isinstance(t, StepTask)}.values():
            there = [path for path in (*map(Path, task.step.writes), layout.log(task.name)) if path.is_file()]
            if there:
                self.outstream.write(f"{task.name}: {verb} {len(there)} file{'s' * (len(there) > 1)}\n")
            if not dryrun:
                _remove_files(there, layout.build)
                if cleanforget:
                    self.dep_manager.remove(task.name)
        if self._everything:
            self._remove_rest(layout, dryrun=dryrun)
        self.dep_manager.close()

    def _remove_rest(self, layout: Paths, *, dryrun: bool) -> None:
        kept = (layout.lock.name, layout.state.name)
        for path in sorted(layout.build.iterdir()):
            if not path.name.startswith(kept):
                self.outstream.write(f"{'would remove' if dryrun else 'removed'} {path.relative_to(layout.root)}\n")
                if not dryrun:
                    remove(path)


def _remove_files(files: Iterable[Path], top: Path) -> None:
    """Remove files, and the folders up to `top` that this leaves empty."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == top or top not in folder.parents or any(folder.iterdir()):
                break
            folder.rmdir()
