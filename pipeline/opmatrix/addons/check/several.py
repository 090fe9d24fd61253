"""Check several models in shared processes, more than one at once, so that a slow model does not hide the others.

A small model takes 20 ms in a process that has checked another one, and 70 ms in one of its own. Each process takes the
next model that no other one has taken. Where it dies, the model at work is checked in processes of its own, which shows
why, in the time that is left to it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any

from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import take
from opmatrix.addons.check.run_parts import SERVER, ModelChecks
from opmatrix.basics.errors import UsageError, many
from opmatrix.basics.files import write_text
from opmatrix.basics.finding import Finding
from opmatrix.project.paths import Paths

PATIENCE = 5.0
_NAMED = 20  # models that a message names


@dataclass(frozen=True, kw_only=True)
class Answer:
    """All findings of a model and what is known of it, or `error`: why it is no model."""

    findings: Sequence[Finding] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class SeveralChecks:
    """The checks of several models."""

    def __init__(self, paths: Paths, checks: ModelChecks, requests: Sequence[CheckRequest], *, memory: float) -> None:
        """`memory`: the megabytes of all processes together, as far as one alone does not have more."""
        self._paths, self._checks, self._requests = paths, checks, requests
        self._models = {r.label: r for r in requests}  # one may have two names
        self._left = dict(self._models)
        self._began: dict[str, float] = {}  # when `known` first saw it at work
        self._answers: dict[str, Answer] = {}
        self._failed: list[BaseException] = []
        for request in self._models.values():
            checks.forget(request)
        most = max(checks.limits(request).megabytes for request in self._models.values())
        self._threads = 0
        # Two also on one core, so that an endless model does not hide the others.
        cores = max(2, len(os.sched_getaffinity(0)))
        self._at_once = int(max(1, min(cores, len(self._models), memory // most)))

    def start(self) -> None:
        """Start the threads that wait for the processes; these end with `ModelChecks`."""
        for _ in range(self._at_once):
            self._start_one()

    def _start_one(self) -> None:
        Thread(target=self._work, args=(self._threads,), daemon=True).start()
        self._threads += 1

    def new_answers(self, *, patience: float = PATIENCE) -> Iterator[tuple[CheckRequest, Answer]]:
        """Yield the models whose answers have come since the last call, in the order in which they were given: those
        behind a model wait for it, but for so many seconds alone. Raises ServerError."""
        if self._failed:
            raise self._failed[0]
        now = time.monotonic()
        running = self._running()
        stuck = running and all(now - self._began.get(label, now) > PATIENCE for label in running)
        if stuck and len(running) == self._threads < min(2 * self._at_once, len(self._left)):
            self._start_one()  # models that are slow, such as endless ones, hold up the others no longer
        for label in self._taken():
            request = self._models[label]
            if label not in self._answers and not request.ort and self._checks.is_done(request):
                self._answer(request)
            if answer := self._answers.get(label):
                del self._left[label]
                yield from ((r, answer) for r in self._requests if r.label == label)
            elif now - self._began.setdefault(label, now) < patience:
                return

    def left(self) -> Sequence[CheckRequest]:
        """Return the models without an answer."""
        return [r for r in self._requests if r.label in self._left]

    def __str__(self) -> str:
        """Return how many models are done and which ones run."""
        running = self._running()
        done = len(self._models) - len(self._left) + len(self._taken()) - len(running)
        at_work = names([self._models[label].asked for label in running])
        return f"{done} of {many(len(self._models), 'model')}; at work: {at_work or 'none'}"

    def _running(self) -> list[str]:
        return [
            label for label in self._taken()
            if label not in self._answers and not self._checks.is_done(self._models[label])
        ]  # fmt: skip

    def _taken(self) -> list[str]:
        folder = self._paths.model_check("")
        made = {path.name for path in folder.iterdir()} if folder.exists() else set()
        return [label for label in self._left if label in made]

    def _work(self, number: int) -> None:
        try:
            while waiting := [r for r in self._models.values() if not self._checks.folder(r).exists()]:
                self._check_some(waiting, number)
        except BaseException as error:  # the main thread raises it
            self._failed.append(error)

    def _check_some(self, waiting: Sequence[CheckRequest], number: int) -> None:
        """Check models that no other thread takes, one at least, or find that others have taken all."""
        first = waiting[0]
        began = time.time()
        taken: list[CheckRequest] = []
        stopped = False
        if not first.function:
            limits = self._checks.limits(first)
            same = [r for r in waiting if not r.function and self._checks.limits(r).megabytes == limits.megabytes]
            jobs, listed = (self._paths.model_check(f"jobs-{number}.{end}") for end in ("json", "taken"))
            seconds = {"seconds": limits.seconds}
            write_text(jobs, json.dumps([self._job(r) | seconds for r in same]))
            listed.unlink(missing_ok=True)
            log = self._paths.log(f"check:models-{number}")
            arguments = ["check-models", str(jobs)]
            ending = self._checks.run(arguments, log, SERVER, seconds=math.inf, megabytes=limits.megabytes)
            if listed.exists():
                began = listed.stat().st_mtime  # of the last one
                taken = [self._models[line] for line in listed.read_text(encoding="utf-8").splitlines()]
            stopped = ending.status == -signal.SIGALRM
            if stopped and taken:
                self._checks.time_is_over(taken[-1], ending, log)
        if not taken and take(self._job(first)):
            taken = [first]
        for request in taken:
            if request.ort or not self._checks.is_done(request):
                at_work = request is taken[-1]
                self._answer(request, spent=time.time() - began if at_work else 0.0)

    def _job(self, request: CheckRequest) -> dict[str, Any]:
        folder = str(self._checks.folder(request))
        return {"model": request.model, "folder": folder, "options": asdict(request.parts), "of": ""}

    def _answer(self, request: CheckRequest, *, spent: float = 0.0) -> None:
        """Take the results of a shared process, or check the model in processes of its own."""
        findings: list[Finding] = []
        try:
            facts = self._checks.check(request, lambda _, shown: findings.extend(shown), spent=spent)
            answer = Answer(findings=findings, facts=facts)
        except UsageError as error:
            answer = Answer(error=str(error))
        self._answers[request.label] = answer


def names(models: Sequence[str]) -> str:
    """Return the names of models, of many the first."""
    more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
    return ", ".join(models[:_NAMED]) + more
