"""Steps that did not succeed: what to say about them, and the verdict that they leave."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

from doit.exceptions import TaskFailed

from pipeline.aside import last, shown
from pipeline.step import Step

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
    command = ["python", "-m", "pipeline", *failure.step.command, *failure.step.asks, *case]
    told = [f"Replay: {shlex.join(command)}"]
    if failure.died and failure.step.group in _WITH_LIBRARY:
        build = [*command[:3], "compile", failure.step.operator, "--debug"]
        told.append(f"Debug: {shlex.join(build)} && {shlex.join(['gdb', '--args', *command, '--debug'])}")
    return told


def ended(step: Step, *, status: int, seconds: float, stopped: str, log: Path) -> StepFailed:
    """Return the failure of a step that ended with `status`: an exit code, or minus a signal's number."""
    if stopped == "time":
        summary = f"did not end within {step.seconds:g} s and was stopped"
    elif stopped:
        summary = f"took more than {step.megabytes:g} MB of memory and was stopped"
    elif status < 0:
        summary = f"died of {signal.Signals(-status).name} after {seconds:.1f} s"
    else:
        summary = f"failed with exit code {status}"
    output = read_output(log) if step.server is None else _last_lines(read_output(log), _LINES)
    case = ""
    if died := bool(stopped) or status < 0:
        at = last(_read(log))
        summary += f", at {at}" if at else ""
        case = at.removeprefix(_CASE) if at.startswith(_CASE) else ""
    return StepFailed(step, summary=summary, output=output, log=log, died=died, case=case)


def read_output(log: Path) -> str:
    """Return what a step printed: its log without the first line, which is the command, and what is there to be looked
    up alone."""
    return shown(_read(log).partition("\n")[2]).rstrip()


def _read(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


def _last_lines(text: str, count: int) -> str:
    return "\n".join(text.splitlines()[-count:])


def leave_verdict(step: Step, failure: StepFailed | StepBlocked) -> None:
    """Write the verdict of a step that left none, or that died after it had written one.

    A step that judged and failed, such as a mismatch, wrote its own.
    """
    if step.verdict is None or step.lowering is None or step.cell is None:
        return
    path = Path(step.verdict)
    if isinstance(failure, StepFailed) and not failure.died and path.exists():
        return
    from pipeline import verdict  # here, because a run with nothing to do pays for every import

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
