"""Whether a step is up to date: the content of its inputs and outputs, its configuration and its command.

The key of a step is a hash of these (`step_detail`). It is recorded when the step succeeds.
What a kind of step puts into its configuration is in opmatrix.plan (steps.py, keys.py).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.dependency import Dependency, DependencyStatus
from doit.task import Task

from opmatrix.basics.files import Mark, mark, read_list
from opmatrix.engine.database import Fingerprints, Journal
from opmatrix.engine.tasks import REPORT, StepTask

_Digests = Mapping[str, str | None]
_Digest = Callable[[str], str | None]
_LINK = "-> "


class State(Dependency):
    """doit's dependency manager, on the journal.

    Unlike doit's own, it hashes inputs before the step runs and not after it (doit #119), clears the success before the
    step runs (#191), commits it as the step ends (#463), compares the content of outputs and not only their existence,
    and compares the configuration.
    """

    def __init__(self, journal: Journal, *, root: Path, tasks: Sequence[Task]) -> None:
        super().__init__(lambda *_, **__: journal, journal.name)
        self.journal = journal
        self._tasks = tasks
        self._root, self._prefix = root, f"{root}/"
        self._files = Fingerprints(journal.files)
        # Until a step begins, by path: a file that several steps read is then hashed once.
        self._cached: dict[str, str | None] | None = {}
        self._inputs_at_start: dict[str, _Digests] = {}
        self._written: dict[str, tuple[str | None, str]] = {}  # by path: digest, the step that wrote it
        self._marks_at_start: dict[str, dict[str, Mark | None]] = {}
        declared = {path for task in tasks if isinstance(task, StepTask) for path in task.step.declared}
        self._marks_when_planned = {path: mark(path) for path in declared}

    def close(self) -> None:
        if not self._closed and self._files.fresh:
            with suppress(sqlite3.OperationalError):  # the disk is full: the next command hashes these files again
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
        if missing := self.missing_inputs(task, inputs):
            result.status = "error"
            result.error_reason = f"its input {missing[-1]} does not exist, and no step writes it"
            return result
        self._inputs_at_start[task.name] = inputs
        self._written |= {path: (digest, task.name) for path, digest in outputs.items()}
        if not self.is_up_to_date(task.name, step_detail(task, inputs, outputs)):
            result.status = "run"
        return result

    def save_success(self, task: Task, result_hash: str | None = None) -> None:
        """Record that a step succeeded. Raises FileNotFoundError for an output that it did not write.

        A step whose input changed while it ran is not recorded, so that the next run repeats it.
        """
        if not isinstance(task, StepTask):
            return
        outputs = self._outputs(task)
        for path, digest in outputs.items():
            if digest is None:
                raise FileNotFoundError(2, "not written", path)
        self._written |= {path: (digest, task.name) for path, digest in outputs.items()}
        if self.changed_meanwhile(task):
            return
        inputs = {**self.digests(task)[0], **self.inputs_at_start(task)}
        dropped = self._outputs_before(task).keys() - outputs.keys()  # such as a case's data
        for path in dropped and dropped - {self.relative(path) for other in self._tasks for path in other.targets}:
            Path(self._prefix, path).unlink(missing_ok=True)
        detail = step_detail(task, inputs, outputs)
        self.journal.record(task.name, key=_key(detail), detail=detail)

    def begin(self, task: StepTask) -> None:
        """Forget the success of a step that is about to run, remove what could be taken for its result, and note the
        marks of its inputs. Raises OSError."""
        self._cached = None
        declared = {path: self._marks_when_planned[path] for path in task.step.declared}
        self._marks_at_start[task.name] = {path: mark(path) for path in task.file_dep} | declared
        self.journal.forget(task.name)
        if task.name == REPORT:  # the new report lists the changes since the last one
            return
        # The records go, and each output that the step did not leave in this state. The others stay: ninja compares
        # their time stamps. So do links: a step that makes the same ones may run now, such as that of the same model in
        # another ONNX Runtime; and a step replaces those that are wrong.
        known = self._outputs_before(task)
        found = self._digests(task.targets).items()
        foreign = (path for path, digest in found if digest is not None and digest != known.get(path))
        for path in (*task.step.records, *foreign):
            Path(self._prefix, path).unlink(missing_ok=True)

    def _outputs_before(self, task: StepTask) -> _Digests:
        """Return the outputs that a step wrote when it last succeeded."""
        outputs: _Digests = (self.journal.detail(task.name) or {}).get("outputs", {})
        return outputs

    def remove_success(self, task: Task) -> None:
        """Do nothing: `begin` forgot a step that ran, and a step that was blocked may be up to date later."""

    def changed_meanwhile(self, task: Task) -> str | None:
        """Return a sentence why the result of a step is invalid, or None: an input that changed since the step began
        or since another step wrote it, or a declaration that changed since the step was planned."""
        for path, digest in self.inputs_at_start(task).items():
            written, writer = self._written.get(path, (digest, ""))
            if written != digest:
                return f"{path} was changed after {writer} wrote it"
        marks = self._marks_at_start.get(task.name, {})
        changed = (self.relative(path) for path, before in sorted(marks.items()) if mark(path) != before)
        return next((f"{path} was written while the step ran" for path in changed), None)

    def is_up_to_date(self, step: str, detail: Mapping[str, Any]) -> bool:
        """Return whether a step with this `step_detail` need not run."""
        return _key(detail) == self.journal.key(step)

    def digests(
        self, task: StepTask, digest: _Digest | None = None
    ) -> tuple[dict[str, str | None], dict[str, str | None]]:
        """Return the digests of the inputs and of the outputs of a step, by path in the project. Raises OSError.

        `digest`: in place of reading the files.
        """
        discovered: list[str] = []
        if task.step.discovered_inputs:
            with suppress(OSError, UnicodeDecodeError):
                discovered = read_list(task.step.discovered_inputs, root=self._root)
        return self._digests({*task.file_dep, *discovered}, digest), self._outputs(task, digest)

    def unchanged(self, digests: _Digests) -> bool:
        """Return whether files, by path in the project, still have these digests. Raises OSError."""
        return all(
            (_link if str(digest).startswith(_LINK) else self._files.digest)(f"{self._prefix}{path}") == digest
            for path, digest in digests.items()
        )

    def digest(self, path: str) -> str | None:
        """Return the digest of a file, by its path in the project or an absolute one. Raises OSError."""
        return self._files.digest(path if path.startswith("/") else f"{self._prefix}{path}")

    def inputs_at_start(self, task: StepTask) -> _Digests:
        """Return the digests that the inputs had as the step began, without its discovered inputs."""
        before = self._inputs_at_start[task.name]
        return {path: before[path] for path in map(self.relative, task.file_dep)}

    def _digests(self, paths: Iterable[str], digest: _Digest | None = None) -> dict[str, str | None]:
        digest = digest or self._digest
        return {self.relative(path): digest(path) for path in sorted(paths)}

    def _outputs(self, task: StepTask, digest: _Digest | None = None) -> dict[str, str | None]:
        return self._digests(task.targets, digest) | {self.relative(link): _link(link) for link in task.step.links}

    def _digest(self, path: str) -> str | None:
        if self._cached is None:
            return self._files.digest(path)
        if path not in self._cached:
            self._cached[path] = self._files.digest(path)
        return self._cached[path]

    def missing_inputs(self, task: StepTask, inputs: _Digests) -> list[str]:
        """Return the inputs that do not exist. A discovered one may be gone: the step then runs again."""
        return [path for path in map(self.relative, task.file_dep) if inputs[path] is None]

    def relative(self, path: str) -> str:
        """Return a path relative to the project, so that a project that is moved stays up to date."""
        return path.removeprefix(self._prefix)


def _link(path: str) -> str | None:
    """Return what is compared of a symbolic link in place of a digest; None if there is no link."""
    try:
        return f"{_LINK}{os.readlink(path)}"  # noqa: PTH115 - Path.readlink takes four times as long, for thousands
    except OSError:
        return None


def step_detail(task: StepTask, inputs: _Digests, outputs: _Digests) -> dict[str, Any]:
    """Return all that decides whether a step is up to date, as the journal keeps it. The digests are by path."""
    return {"config": task.step.config, "command": list(task.step.command), "inputs": inputs, "outputs": outputs}


def _key(detail: Mapping[str, Any]) -> str:
    parts = [detail["config"], *detail["command"]]
    for word, files in (("reads", "inputs"), ("writes", "outputs")):
        parts += [word, *(f"{path}\0{digest}" for path, digest in detail[files].items())]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()
