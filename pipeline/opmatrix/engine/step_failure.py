"""The message and the verdict of a step that failed, crashed, exceeded a limit, or was not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from doit.exceptions import TaskFailed

from opmatrix.basics.errors import REMEDY, Cause, many, without_colours
from opmatrix.basics.processes import signal_name
from opmatrix.basics.step_log import MOST_BYTES, last_running, logged_cause, read_log, visible_lines
from opmatrix.project.work_folder import WRITTEN
from opmatrix.records.step import CheckKey, Step, read_name

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Ending

# The last lines that are shown of the output of a step in a server: a crash may print pages. The output of other steps,
# such as compiler errors, is shown whole.
_TAIL = 30
# What the module faulthandler prints when a process dies.
_STACK = re.compile(
    r'Fatal Python error: |(Current thread|Thread) 0x\w+.*\(most recent call first\):|  File ".*", line \d+ in |'
    r"  <no Python frame>|Extension modules: "
)
_WAITING = 0.05  # CPU seconds per second, less than which a process waits also on a busy machine
_LINE = 2000  # characters that are shown of a line
_WITH_LIBRARY = ("register", "verify")  # groups whose steps load the compiled libraries
DEBUG = "Debug: "
_PLANNED = "--planned"  # by which a step of doit refuses a declaration that was wrong when doit planned
_CASE = "case "  # `step_log.now_running` with this prefix names a case that --case takes


@dataclass(eq=False, repr=False)
class StepFailed(TaskFailed):
    """A step that ran and did not succeed. `died`: it did not end by itself; `case`: during this case, if known;
    `told`: the cause that the step wrote to its log; `stopped`: it exceeded its time; `notes`: what is known of
    that."""

    step: Step
    _: KW_ONLY
    summary: str
    output: str = ""
    log: Path | None = None
    died: bool = False
    case: str = ""
    told: Cause | None = None
    stopped: bool = False
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__init__(f"{self.step.task}: {self.summary}")

    @cached_property
    def cause(self) -> Cause:
        """What is wrong, with the command that repeats it."""
        from opmatrix.engine.find_cause import find_cause  # imported here: most runs have no failure

        lines = [self.how] if self.how else self.output.splitlines()
        found = find_cause(self.step, lines, root=Path.cwd(), told=None if self.died else self.told)
        return found if found.command else replace(found, command=replay_command(self))

    @property
    def how(self) -> str:
        """How the step failed; "" for its exit code where its output says more."""
        return self.summary if self.died or not self.output else ""

    @property
    def detail(self) -> str:
        """The whole message, for a verdict."""
        return "\n".join(filter(None, [self.how, without_colours(self.output), *self.notes, *replay_commands(self)]))


class StepBlocked(TaskFailed):
    """A step or a group that was not run because `cause` failed. Printed once per cause, not per step."""

    def __init__(self, name: str, cause: StepFailed) -> None:
        super().__init__(f"{name}: not run: {cause.step.task} failed", report=False)
        self.cause = cause

    @property
    def detail(self) -> str:
        failure = self.cause
        why = failure.told.sentence.partition(". ")[0] if failure.told else ""
        if not why and not failure.died:  # the first error in its output
            lines = [line for line in without_colours(failure.output).splitlines() if not line.startswith("$ ")]
            why = next((line for line in lines if "error" in line), lines[0] if lines else "")
        return f"not run: {failure.step.task} failed: {why or failure.summary}"


class NotShared(StepBlocked):
    """A step that a run which computes nothing did not run, because the shared cache has no result of it, or of the
    step `cause` that it needs."""

    @classmethod
    def of(cls, step: Step) -> NotShared:
        return cls(step.task, StepFailed(step, summary=f"the shared cache has no result of {_all_like(step).task}"))

    @property
    def detail(self) -> str:
        return f"not run: {self.cause.summary}"


def _all_like(step: Step) -> Step:
    """Return the step of a cell or of a check with a pattern as its name, ``verify:gelu*``; any other one as it is."""
    return replace(step, name=f"{step.operator}*") if step.cell or read_name(step.task).where else step


def replay_command(failure: StepFailed) -> str:
    """Return the command that runs the failed step again."""
    case = ["--case", failure.case] if failure.case else []
    command = [word for word in failure.step.command if word != _PLANNED]
    return shlex.join(["python", "-m", "opmatrix", *command, *failure.step.asks, *case])


def replay_commands(failure: StepFailed) -> list[str]:
    """Return the commands that run the failed step again, and, if a library may have crashed, run it in a debugger."""
    command = replay_command(failure)
    lines = [f"Replay: {command}"]
    if failure.died and failure.step.group in _WITH_LIBRARY:
        build = shlex.join(["python", "-m", "opmatrix", "compile", failure.step.operator, "--debug"])
        lines.append(f"{DEBUG}{build} && gdb --args {command} --debug")
    return lines


def death_message(ending: Ending, *, seconds: float, megabytes: float, written: float = WRITTEN) -> str:
    """Return how a process died or at which limit it was stopped, or "" if it ended by itself."""
    if ending.stopped == "time":
        return f"did not end within {seconds:g} s and was stopped"
    if ending.stopped == "log":
        return f"printed more than {MOST_BYTES / 1e6:g} MB and was stopped"
    if ending.stopped == "written":
        return f"wrote more than {written:g} MB and was stopped"
    if ending.stopped:
        return f"took more than {megabytes:g} MB of memory and was stopped"
    if ending.status == 0:
        return "ended with exit code 0 before it was done (code in it called exit; let that raise an error instead)"
    return f"died of {signal_name(-ending.status)} after {ending.seconds:.1f} s" if ending.status < 0 else ""


def failure_of(step: Step, ending: Ending, log: Path) -> StepFailed:
    """Return the failure of a step that is not done."""
    lines = read_output(log).splitlines()
    if step.server or ending.stopped == "log":
        lines = _without_stack(lines, Path.cwd())[-_TAIL:]
    output = "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]} ..." for line in lines)
    logged = read_log(log)
    if not (how := death_message(ending, seconds=step.seconds, megabytes=step.megabytes, written=step.written)):
        summary = f"failed with exit code {ending.status}"
        if not logged:  # its first line is the command
            summary += f", and could not write to its log '{log}'. {REMEDY}"
        return StepFailed(step, summary=summary, output=output, log=log, told=logged_cause(logged))
    at = last_running(logged)
    case = at.removeprefix(_CASE).partition(" ")[0] if at.startswith(_CASE) else ""  # what follows describes it
    summary, stopped = f"{how}, at {at}" if at else how, ending.stopped == "time"
    notes = []
    if stopped and ending.last_cpu:
        cpu, seconds = ending.last_cpu
        what = "it was waiting, such as for a lock" if cpu < _WAITING * seconds else "it was computing"
        notes.append(f"In its last {seconds:.1f} s it used {cpu:.2f} s of CPU time: {what}")
    if stopped:
        notes.append("The limit is `seconds` in [tool.opmatrix.limits] of pyproject.toml")
    if ending.processes:
        started = many(ending.processes, "process", "processes")
        notes.append(f"It counts with {started} that it had started and not ended")
    if ending.stopped == "written":
        notes.append("The limit is `written` in [tool.opmatrix.limits] of pyproject.toml, in MB")
    return StepFailed(step, summary=summary, output=output, log=log, died=True, case=case, stopped=stopped, notes=notes)


def _without_stack(lines: Sequence[str], root: Path) -> list[str]:
    """Return lines without the stack that Python prints when it dies, but for frames in ops/. The log has all: a crash
    is in C++."""
    if not any(line.startswith("Fatal Python error: ") for line in lines):
        return [*lines]
    kept = [line for line in lines if not _STACK.match(line) or line.startswith(f'  File "{root}/ops/')]
    return [line for number, line in enumerate(kept) if line or (number and kept[number - 1])]


def read_output(log: Path) -> str:
    """Return the output of a step: its log without the first line, the command, and without details."""
    return visible_lines(read_log(log).partition("\n")[2]).rstrip()


def leave_verdict(step: Step, failure: StepFailed | StepBlocked) -> None:
    """Write a failed verdict or check record for a step, unless the step itself wrote one with a wrong outcome and did
    not die after that."""
    if step.verdict is None:
        return
    path = Path(step.verdict)
    from opmatrix.records import verdict  # imported here: a run with nothing to do does without

    if isinstance(failure, StepFailed) and not failure.died and verdict.read_head(path).get("outcome") in verdict.WRONG:
        return
    blocked_by = None
    if isinstance(failure, StepBlocked):
        cause, missing = failure.cause.step, isinstance(failure, NotShared)
        name = (_all_like(cause) if missing else cause).name
        blocked_by = verdict.FailedStep(group=cause.group, name=name, missing=missing)
    found: verdict.Found
    if step.lowering and step.cell:
        found = verdict.Verdict(op=step.operator, lowering=step.lowering, cell=step.cell, outcome="failed")
    else:
        op, check, lowering, torch = step.check or CheckKey(step.operator, step.group)
        found = verdict.CheckRecord(op=op, check=check, lowering=lowering, torch=torch, outcome="failed")
    verdict.write(path, replace(found, detail=failure.detail, blocked_by=blocked_by))
