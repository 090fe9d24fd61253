"""The failures of a run by their causes: equal failures count, and those of one place in a file are one cause.

Describe the inputs of a case that failed, from its declaration: a process that crashed or hung cannot.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.errors import Cause, many, one_line
from opmatrix.basics.terminal import for_shell, in_any_cell, wrapped
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.models import graph_inputs
from opmatrix.engine.step_failure import DEBUG, StepBlocked, StepFailed, replay_commands
from opmatrix.project.paths import Paths
from opmatrix.signature.python_source import literal, source
from opmatrix.signature.signature import attribute_values, dtype_of
from opmatrix.spec import Case, Model, OpSpec, Random, Values, shape_of

_MORE = " ..."
_FEW = 60  # characters of values that are shown
_WHOLE = 3  # causes that the summary shows with their commands
_SENTENCE = 3  # lines of the sentence where the verdict is brief
_LISTED = 8  # causes that it lists, if there are more


@dataclass
class OneCause:
    """What failed for one reason: the first failure, and all in the order in which they happened."""

    failures: list[StepFailed]
    blocked: int = 0

    @property
    def first(self) -> StepFailed:
        return self.failures[0]

    @property
    def steps(self) -> str:
        """``compile:relu``, or ``2 steps of register, 11 of verify``; then how many steps did not run."""
        groups = Counter(failure.step.group for failure in self.failures)
        (group, count), *others = groups.items()
        failed = f"{many(count, 'step')} of {group}" + "".join(f", {n} of {g}" for g, n in others)
        named = self.first.step.task if len(self.failures) == 1 else failed
        return f"{named} failed" + (f", {many(self.blocked, 'step')} did not run" if self.blocked else "")

    @property
    def head(self) -> str:
        return f"FAILED {self.first.cause.where or self.first.step.task}"

    @property
    def extent(self) -> str:
        """`steps`, with what is at the line of the cause if the fault may be below that."""
        cause = self.first.cause
        begins = f"; line {cause.line} is where {cause.begins} begins" if cause.begins and cause.line else ""
        return f"  {self.steps}{begins}"


class Causes:
    """The causes of a run so far."""

    def __init__(self) -> None:
        self._alike: Counter[tuple[str, ...]] = Counter()
        self._by_place: dict[tuple[str, ...], OneCause] = {}
        self._of: dict[StepFailed, OneCause] = {}

    def __iter__(self) -> Iterator[OneCause]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    def add(self, failure: StepFailed) -> int:
        """Add a failure; return how many before it are equal but for their cell."""
        cause, step = failure.cause, failure.step
        sentence = in_any_cell(cause.sentence)
        key = step.group, step.operator, cause.where, sentence
        place = (step.operator, cause.where) if cause.file else key
        one = self._by_place.setdefault(place, OneCause([]))
        one.failures.append(failure)
        self._of[failure] = one
        self._alike[key] += 1
        return self._alike[key] - 1

    def add_blocked(self, blocked: StepBlocked) -> None:
        """Count a step that did not run because of a failure."""
        if blocked.cause in self._of:
            self._of[blocked.cause].blocked += 1


def brief(cause: Cause, width: int) -> str:
    """Return a cause as what follows the line of a step that failed: at most two lines in a terminal of `width`."""
    place = f"{cause.place}: " if cause.where else ""
    lines = wrapped(f"  {place}{cause.sentence}", width and width - len(_MORE)).split("\n")
    return "\n" + "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1] + _MORE])


def details(one: OneCause) -> str:
    """Return the whole message of a cause's first failure, and how many are like it."""
    failure = one.first
    lines = [f"{failure.step.task}: {failure.how or 'failed'}"]
    lines += [f"  {line}" for line in failure.output.splitlines()]
    lines += [f"  {note}" for note in failure.notes]
    if failure.log:
        lines.append(f"  Log: {os.path.relpath(failure.log)}")
    lines += [f"  {line}" for line in replay_commands(failure)]
    if len(one.failures) > 1:
        lines.append(f"  The same in {one.steps}")
    return "\n" + "\n".join(lines) + "\n"


def summary(causes: Sequence[OneCause], *, rest: str, width: int) -> list[str]:
    """Return the last lines of a run with failures: each cause with file, line, sentence and command, in less than a
    screen. `rest` is where all are, `width` that of the terminal. What may follow from another cause is counted."""
    every, causes = causes, _first_of_all(causes)
    alone, lines = len(causes) == 1, [""]
    if len(causes) <= _WHOLE:
        for one in causes:
            cause = one.first.cause
            lines += [one.head, f"  {_cut(cause.sentence, 0 if alone else 2 * (width - 4))}"]
            if alone:
                inputs = inputs_of(Paths(Path.cwd()), one.first.step.operator, cause.command)
                lines += [*([f"  inputs: {inputs}"] if inputs else []), *(f"  {note}" for note in one.first.notes)]
            lines += [one.extent, f"  Replay: {cause.command}", *_next_step(one.first, alone=alone)]
    else:
        for one in causes[:_LISTED]:
            head = f"{one.head}: "
            lines.append(head + _cut(one.first.cause.sentence, 2 * (width - 4) - len(head)))
        if len(causes) > _LISTED:
            lines.append(f"{many(len(causes) - _LISTED, 'more cause')} in {rest}")
        lines.append(f"Replay: {causes[0].first.cause.command}")
    if following := len(every) - len(causes):
        lines.append(f"{many(following, 'further failure')} of the same operator may follow from this: {rest}")
    return lines


def head(one: OneCause, *, width: int, most: int) -> list[str]:
    """Return the first lines of a cause, of which `in_lines` makes at most `most`: where it is, and its sentence, cut
    if it must be."""
    room = max(1, min(_SENTENCE, most - 2 - len(_commands(one, width))))
    sentence = wrapped(f"  {one.first.cause.sentence}", width - len(_MORE)).split("\n")
    if len(sentence) > room:
        sentence = [*sentence[: room - 1], sentence[room - 1] + _MORE]
    return [one.head, *sentence]


def in_lines(causes: Sequence[OneCause], *, width: int, most: int, shown: Sequence[str] = ()) -> list[str]:
    """Return the first cause in at most `most` lines of a terminal of `width` columns, and as many others as fit, in a
    line each. The command is whole, so that it can be pasted. `shown`: a `head` that is on the screen already."""
    every, causes = causes, _first_of_all(causes)
    one, *others = causes
    first = head(one, width=width, most=most)
    lines = [*([] if [*shown] == first else first), _cut(one.extent, width), *_commands(one, width)]
    room = max(0, most - len(lines) - len(shown))
    listed = others if len(others) <= room and len(every) == len(causes) else others[: max(0, room - 1)]
    lines += [_cut(f"{other.head}: {other.first.cause.sentence}", width) for other in listed]
    left = len(every) - 1 - len(listed)
    return [*lines, many(left, "more cause")] if left and room else lines


def _commands(one: OneCause, width: int) -> list[str]:
    """Return the lines of the command that shows more, and of what to do next."""
    commands = [f"  Replay: {one.first.cause.command}", *_next_step(one.first, alone=True)]
    return wrapped(for_shell("\n".join(commands)), width).split("\n")


def _first_of_all(causes: Sequence[OneCause]) -> list[OneCause]:
    """Return the causes without those that may follow from another one: an operator whose declaration and reference
    contradict each other, as the step `data` finds, fails in later stages too, and there less clearly."""
    contradicted = {one.first.step.operator for one in causes if one.first.step.group == "data"}
    return [one for one in causes if one.first.step.group == "data" or one.first.step.operator not in contradicted]


def _next_step(failure: StepFailed, *, alone: bool) -> list[str]:
    """Return the command that names the line of C++ in which a kernel crashed, or hangs."""
    operator = failure.step.operator
    if not operator or not Path("native", operator).is_dir():
        return []
    if failure.summary.startswith("died of SIG") or "the kernel died of SIG" in failure.cause.sentence:
        return [f"  To find the crashing line, run `doit sanitize:{operator}`"]
    debug = [f"  {line}" for line in replay_commands(failure) if alone and failure.stopped and line.startswith(DEBUG)]
    return [*debug, "  In the debugger, `run`, Ctrl-C and `bt` show the line where it hangs"] if debug else []


def _cut(sentence: str, length: int) -> str:
    """Return a sentence of at most `length` characters, if that is more than 0."""
    return sentence if length <= 0 or len(sentence) <= length else sentence[: length - len(_MORE)] + _MORE


def annotation(cause: Cause, *, title: str, prefix: str = "") -> str:
    """Return the workflow command of GitHub for one cause, with the command that repeats it, if it has one. The pull
    request shows it at the line of the file. `prefix`: the project's folder in the repository.

    Format: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
    """
    properties = {"title": title}
    if cause.file:
        properties = {"file": f"{prefix}{cause.file}", "line": str(cause.line or 1)} | properties
    listed = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    message = "\nReplay: ".join(filter(None, [cause.sentence, cause.command]))
    return f"::error {listed}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Return a string as a workflow command takes it: percent signs, line ends and `more` escaped as in URLs."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)


def inputs_of(paths: Paths, operator: str, command: str) -> str:
    """Return ``x float32 (2, 3), groups float32 (1,) = (2.0,); eps=1e-05`` for the case of cases.py that a command
    names, or ""."""
    words = shlex.split(command)
    name = words[words.index("--case") + 1] if "--case" in words[:-1] else ""
    for one in read_operators(paths).operators if name else ():
        for model in one.models if one.name == operator else ():
            if case := next((case for case in model.cases if case.name == name), None):
                attributes = [f"{key}={literal(value)}" for key, value in attribute_values(one.spec, model).items()]
                return "; ".join(filter(None, [", ".join(_inputs(one.spec, model, case)), ", ".join(attributes)]))
    return ""


def _inputs(spec: OpSpec, model: Model, case: Case) -> Iterator[str]:
    for one in graph_inputs(spec, model, case):
        tensor = one.tensor
        name = f"{one.part.name}[{one.index}]" if one.part.variadic else one.part.name
        text = f"{name} {dtype_of(one.part.type, model.types)} {shape_of(tensor)}"
        if isinstance(tensor, Values) and len(values := one_line(source(tensor.values, width=_FEW))) <= _FEW:
            text += f" = {values}"
        if isinstance(tensor, Random) and tensor.specials:
            text += f" with {', '.join(f'{v} at {i}' for i, v in [*tensor.specials.items()][:3])}"
        layout = getattr(tensor, "layout", "contiguous")
        yield text if layout == "contiguous" else f"{text} {layout}"
