"""Whether a step is up to date: the content of what it reads and wrote, its configuration, its command."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.dependency import Dependency, DependencyStatus
from doit.task import Task

from opmatrix.engine.database import Journal
from opmatrix.engine.doit_tasks import StepTask
from opmatrix.engine.file_hashes import Fingerprints, Mark, mark

_Digests = Mapping[str, str | None]


class State(Dependency):
    """doit's view of the journal.

    It stands in for what doit's own lacks: inputs are fingerprinted before the step runs and not after it (#119),
    success is forgotten before the step runs (#191) and committed as it ends (#463), outputs are compared and not
    only looked for, and the configuration counts.
    """

    def __init__(self, journal: Journal, *, root: Path, tasks: Sequence[Task]) -> None:
        super().__init__(lambda *_, **__: journal, journal.name)
        self.journal = journal
        self._tasks = tasks
        self._prefix = f"{root}/"
        self._files = Fingerprints(journal.files())
        self._cache_digests = True  # until a step begins: what several steps read is then looked at once
        self._seen: dict[str, str | None] = {}
        self._before: dict[str, _Digests] = {}
        self._made: dict[str, tuple[str | None, str]] = {}  # what steps have written: fingerprint, step
        self._marks: dict[str, dict[str, Mark | None]] = {}
        declared = {path for task in tasks if isinstance(task, StepTask) for path in task.step.declared}
        self._planned = {path: mark(path) for path in declared}

    def close(self) -> None:
        if not self._closed and self._files.fresh:
            with suppress(sqlite3.OperationalError):  # the disk is full: they are but looked at again
                self.journal.save_files(self._files.fresh)
        super().close()

    def get_status(self, task: Task, tasks_dict: Mapping[str, Task], get_log: bool = False) -> DependencyStatus:
        """Return doit's status of a task: "up-to-date", "run", or "error" where an input is missing."""
        result = DependencyStatus(get_log)
        task.dep_changed = []
        if not isinstance(task, StepTask):
            return result
        try:
            inputs, outputs = self.digests(task)
        except OSError as error:
            result.status, result.error_reason = "error", f"{error.filename}: {error.strerror}"
            return result
        for path in missing(task, inputs, self.relative):
            result.add_reason("missing_file_dep", path, "error")
            result.error_reason = f"its input {path} does not exist, and no step writes it"
        if result.status == "error":
            return result
        self._before[task.name] = inputs
        self._made |= {path: (digest, task.name) for path, digest in outputs.items()}
        if not self.is_up_to_date(task, inputs=inputs, outputs=outputs):
            result.status = "run"
        return result

    def save_success(self, task: Task, result_hash: str | None = None) -> None:
        """Record a step that has succeeded. Raises FileNotFoundError for an output that it did not write.

        Not recorded, and so repeated by the next run: a step whose input was written while it ran.
        """
        if not isinstance(task, StepTask):
            return
        outputs = self._digests(task.targets)
        for path, digest in outputs.items():
            if digest is None:
                raise FileNotFoundError(2, "not written", path)
        self._made |= {path: (digest, task.name) for path, digest in outputs.items()}
        if self.changed_meanwhile(task):
            return
        inputs = {**self.digests(task)[0], **self._digests_at_start(task)}
        self._remove_dropped(task, outputs)
        detail = now(task, inputs=inputs, outputs=outputs)
        self.journal.record(task.name, key=_key(task, inputs, outputs), detail=detail)

    def begin(self, task: StepTask) -> None:
        """Forget the success of a step that is about to run, and note when its inputs were last written."""
        self._cache_digests = False
        declared = {path: self._planned[path] for path in task.step.declared}
        self._marks[task.name] = {path: mark(path) for path in task.file_dep} | declared
        self.journal.forget(task.name)

    def remove_success(self, task: Task) -> None:
        """Do nothing: a step that ran was forgotten as it began, and one that was blocked may be up to date later."""

    def changed_meanwhile(self, task: Task) -> str | None:
        """Say what was written behind the back of a step that ran, and makes what it did worth nothing, or None.

        An input since the step began or since the step before had written it, a declaration since it was planned.
        """
        for path, digest in self._digests_at_start(task).items():
            made, writer = self._made.get(path, (digest, ""))
            if made != digest:
                return f"{path} was written by something else after {writer} wrote it"
        marks = self._marks.get(task.name, {})
        changed = (self.relative(path) for path, before in sorted(marks.items()) if mark(path) != before)
        return next((f"{path} was written while the step ran" for path in changed), None)

    def is_up_to_date(self, task: StepTask, *, inputs: _Digests, outputs: _Digests) -> bool:
        """Return whether a step that reads and has written files of these fingerprints need not run."""
        return _key(task, inputs, outputs) == self.journal.key(task.name)

    def digests(self, task: StepTask) -> tuple[dict[str, str | None], dict[str, str | None]]:
        """Return the fingerprints of what a step reads and writes, by path in the project. Raises OSError."""
        found = _listed_paths(task.step.discovered_inputs) if task.step.discovered_inputs else ()
        return self._digests({*task.file_dep, *found}), self._digests(task.targets)

    def unchanged(self, known: _Digests) -> bool:
        """Return whether files, by path in the project, have the fingerprints that they had. Raises OSError."""
        return all(self._files.digest(f"{self._prefix}{path}") == digest for path, digest in known.items())

    def _digests_at_start(self, task: StepTask) -> _Digests:
        """Return the fingerprints that the inputs had as the step began, without what it was found to read."""
        before = self._before[task.name]
        return {path: before[path] for path in map(self.relative, task.file_dep)}

    def _digests(self, paths: Any) -> dict[str, str | None]:
        digest = self._digest_seen if self._cache_digests else self._files.digest
        return {self.relative(path): digest(path) for path in sorted(paths)}

    def _digest_seen(self, path: str) -> str | None:
        if path not in self._seen:
            self._seen[path] = self._files.digest(path)
        return self._seen[path]

    def relative(self, path: str) -> str:
        """Return a path relative to the project: its place on disk must not make a step stale."""
        return path.removeprefix(self._prefix)

    def _remove_dropped(self, task: StepTask, outputs: _Digests) -> None:
        """Remove what the step wrote when it last succeeded and now no longer writes, such as a case's data."""
        known = (self.journal.detail(task.name) or {}).get("outputs", {})
        if dropped := [path for path in known if path not in outputs]:
            written = {self.relative(path) for other in self._tasks for path in other.targets}
            for path in dropped:
                if path not in written:
                    Path(self._prefix, path).unlink(missing_ok=True)


def missing(task: StepTask, inputs: _Digests, short: Callable[[str], str]) -> list[str]:
    """Return the inputs that do not exist. What a step was once found to read may go: it then runs again."""
    return [path for path in map(short, task.file_dep) if inputs[path] is None]


def _listed_paths(listed: str) -> list[str]:
    try:
        return Path(listed).read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def now(task: StepTask, *, inputs: _Digests, outputs: _Digests) -> dict[str, Any]:
    """Return what a step is made from, in the form that the journal keeps."""
    return {"config": task.step.config, "command": list(task.step.command), "inputs": inputs, "outputs": outputs}


def _key(task: StepTask, inputs: _Digests, outputs: _Digests) -> str:
    parts = [task.step.config, *task.step.command, "reads"]
    parts += [f"{path}\0{digest}" for path, digest in inputs.items()]
    parts.append("writes")
    parts += [f"{path}\0{digest}" for path, digest in outputs.items()]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()
