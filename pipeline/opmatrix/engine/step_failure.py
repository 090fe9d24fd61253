"""Steps that did not succeed: what to say about them, and the verdict that they leave."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from doit.exceptions import TaskFailed

from opmatrix.step import Step
from opmatrix.step_log import last_running, visible_lines

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Ending

# Of a step in a server: a crash may leave pages. What a light step prints, such as a compiler's errors, is shown
# whole.
_LINES = 30
# The groups whose steps load what was compiled.
_WITH_LIBRARY = ("register", "verify")
_CASE = "case "  # what a step says that it is at, where --case takes the rest


class StepFailed(TaskFailed):
    """A step that ran and did not succeed. `died` is True where it did not end by itself; `case` is then what it died
    of, where that is known."""

    def __init__(
        self,
        step: Step,
        *,
        summary: str,
        output: str = "",
        log: Path | None = None,
        died: bool = False,
        case: str = "",
    ) -> None:
        super().__init__(f"{step.task}: {summary}")
        self.step, self.summary, self.output, self.log, self.died, self.case = step, summary, output, log, died, case

    @property
    def detail(self) -> str:
        """The same as one text, for a verdict."""
        return "\n".join(filter(None, [self.summary, self.output, *replays(self)]))

    @property
    def brief(self) -> str:
        """One line: how the step died, or the first error among what it said."""
        said = [line for line in self.output.splitlines() if not line.startswith("$ ")]  # those are commands
        if self.died or not said:
            return self.summary
        return next((line for line in said if "error" in line), said[0])


class StepBlocked(TaskFailed):
    """A step, or a group, that did not run because of `cause`. Reported once per cause and not per step."""

    def __init__(self, name: str, cause: StepFailed) -> None:
        super().__init__(f"{name}: not run: {cause.step.task} failed", report=False)
        self.cause = cause

    @property
    def detail(self) -> str:
        return f"not run: {self.cause.step.task} failed: {self.cause.brief}"


def replays(failure: StepFailed) -> list[str]:
    """Return the commands that run the step of a failure again; of one that a library broke, in a debugger as well."""
    case = ["--case", failure.case] if failure.case else []
    command = ["python", "-m", "opmatrix", *failure.step.command, *failure.step.asks, *case]
    told = [f"Replay: {shlex.join(command)}"]
    if failure.died and failure.step.group in _WITH_LIBRARY:
        build = [*command[:3], "compile", failure.step.operator, "--debug"]
        told.append(f"Debug: {shlex.join(build)} && {shlex.join(['gdb', '--args', *command, '--debug'])}")
    return told


def death(ending: Ending, *, seconds: float, megabytes: float) -> str:
    """Return how a process died or at which limit it was stopped, "" for one that ended by itself."""
    if ending.stopped == "time":
        return f"did not end within {seconds:g} s and was stopped"
    if ending.stopped:
        return f"took more than {megabytes:g} MB of memory and was stopped"
    return f"died of {signal.Signals(-ending.status).name} after {ending.seconds:.1f} s" if ending.status < 0 else ""


def ended(step: Step, ending: Ending, log: Path) -> StepFailed:
    """Return the failure of a step that did not end with 0."""
    output = read_output(log) if step.server is None else "\n".join(read_output(log).splitlines()[-_LINES:])
    if not (how := death(ending, seconds=step.seconds, megabytes=step.megabytes)):
        return StepFailed(step, summary=f"failed with exit code {ending.status}", output=output, log=log)
    at = last_running(_read(log))
    case = at.removeprefix(_CASE) if at.startswith(_CASE) else ""
    return StepFailed(step, summary=f"{how}, at {at}" if at else how, output=output, log=log, died=True, case=case)


def read_output(log: Path) -> str:
    """Return what a step printed: its log without the first line, which is the command, and what is there to be looked
    up alone."""
    return visible_lines(_read(log).partition("\n")[2]).rstrip()


def _read(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


def leave_verdict(step: Step, failure: StepFailed | StepBlocked) -> None:
    """Write the verdict of a step that left none, or that died after it had written one.

    A step that judged and failed, such as a mismatch, wrote its own.
    """
    if step.verdict is None or step.lowering is None or step.cell is None:
        return
    path = Path(step.verdict)
    if isinstance(failure, StepFailed) and not failure.died and path.exists():
        return
    from opmatrix import verdict  # here, because a run with nothing to do pays for every import

    cause = failure.cause.step if isinstance(failure, StepBlocked) else None
    found = verdict.Verdict(
        op=step.operator,
        lowering=step.lowering,
        cell=step.cell,
        outcome="failed",
        detail=failure.detail,
        blocked_by=verdict.FailedStep(group=cause.group, name=cause.name) if cause else None,
    )
    verdict.write(path, found)
