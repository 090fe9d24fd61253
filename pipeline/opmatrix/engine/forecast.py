"""Predict a run: which steps run, which may run, why, and how long they take. It runs and writes nothing.

`doit why`, `doit list --status` and `doit info` print it; the progress line takes the time left from it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from doit.control import TaskControl
from doit.task import Task

from opmatrix.basics.files import LACKS
from opmatrix.engine.tasks import StepTask, estimated
from opmatrix.engine.up_to_date import State, step_detail

Lookup = Callable[[str], str | None]

_WIDTH = 60  # characters of an old or a new value in a sentence
_MOST = 4  # sentences of one kind

# Where the user writes a part of a step's configuration.
_NAMES = {
    "spec": "spec.py",
    "tolerances": "tolerances in spec.py",
    "kernel": "kernel in spec.py",
    "models": "cases.py",
    "used": "spec.py of an operator that it uses",
    "lowered": "lowering",
}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], lookup: Lookup) -> list[str]:
    """Return a sentence per difference of two step details; `lookup` returns the data of a fingerprint, or None."""
    return [
        *_files(before["inputs"], now["inputs"]),
        *_configuration(before["config"], now["config"], lookup),
        *([f"the command {_words(before['command'], now['command'])}"] if before["command"] != now["command"] else []),
        *_outputs(before["outputs"], now["outputs"]),
    ]


def _files(before: Mapping[str, str], now: Mapping[str, str | None]) -> Iterator[str]:
    edited = [path for path, digest in now.items() if path in before and before[path] != digest]
    folders = {path: path.partition(LACKS)[0] for path in edited if LACKS in path}
    yield from _few([f"{folder} has {now[path]}, found in place of a header that was read"
                     for path, folder in folders.items()])  # fmt: skip
    yield from _few([f"{path} {_short(before[path])} -> {_short(now[path])}" for path in edited if path not in folders])
    yield from _few([f"{path} is new" for path in now if path not in before and LACKS not in path])
    yield from _few([f"{path} is no longer read" for path in before if path not in now and LACKS not in path])


def _outputs(before: Mapping[str, str], now: Mapping[str, str | None]) -> Iterator[str]:
    yield from _few([f"{path} is missing" for path, digest in now.items() if digest is None])
    edited = [path for path, digest in now.items() if digest and path in before and before[path] != digest]
    yield from _few([f"{path} changed since this step last succeeded" for path in edited])
    yield from _few([f"{path} is to be written, too" for path, d in now.items() if d and path not in before])
    yield from _few([f"{path} is no longer to be written" for path in before if path not in now])


def _configuration(before: str, now: str, lookup: Lookup) -> Iterator[str]:
    if not before.startswith("{") or not now.startswith("{"):  # not JSON
        if before != now:
            yield f"config {_value(before)} -> {_value(now)}"
        return
    old, new = json.loads(before), json.loads(now)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield from _part(name, old.get(name), new.get(name), lookup)


def _part(name: str, old: Any, new: Any, lookup: Lookup) -> Iterator[str]:
    if name == "ninja":
        yield from _ninja(old or "", new or "")
        return
    texts = [lookup(value) if isinstance(value, str) else None for value in (old, new)]
    old, new = (value if text is None else json.loads(text) for text, value in zip(texts, (old, new), strict=True))
    if name == "code" and isinstance(old, dict) and isinstance(new, dict):
        yield from _files(old, new)
        return
    name = _NAMES.get(name, name)
    if isinstance(old, dict | list) and isinstance(new, dict | list):
        yield from _few([f"{name}: {path} {_value(a)} -> {_value(b)}" for path, a, b in _walk(old, new)])
    elif isinstance(new, dict | list):
        yield f"{name} has changed; what it was is not known"
    else:
        old, new = (_value(v).removeprefix(f"{name} ") for v in (old, new))
        yield f"{name} {old} -> {new}"


def _walk(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, such as ``inputs[x].dims``, and both values of each leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        inner = f"{path}.{{}}" if path else "{}"
    elif _named(old) and _named(new):
        old, new, inner = _named(old), _named(new), f"{path}[{{}}]"
    else:
        yield path, old, new
        return
    for key in [*old, *(k for k in new if k not in old)]:
        if old.get(key) != new.get(key):
            yield from _walk(old.get(key), new.get(key), inner.format(key))


def _named(items: Any) -> dict[str, Any]:
    """Return the items of a list by their names, or an empty dict if an item has none."""
    if isinstance(items, list) and all(isinstance(item, dict) and "name" in item for item in items):
        return {item["name"]: item for item in items}
    return {}


def _ninja(old: str, new: str) -> Iterator[str]:
    """Yield the flags that differ between two build.ninja files."""
    before, now = _variables(old), _variables(new)
    both = [name for name in now if name in before and before[name] != now[name]]
    flags = [f"{name}: {_words(before[name], now[name])}" for name in both]
    lines = sum(line[:1] in "+-" for line in difflib.ndiff(old.splitlines(), new.splitlines()))
    yield from _few(flags) if flags else [f"build.ninja: {lines} lines differ"]


def _variables(text: str) -> dict[str, list[str]]:
    lines = text.replace("$\n", " ").splitlines()
    return {name.strip(): value.split() for name, _, value in (line.partition(" = ") for line in lines) if value}


def _words(old: list[str], new: list[str]) -> str:
    """Return the words that differ between two lists: ``-O2 -> -O3``."""
    gone, come = [w for w in old if w not in new], [w for w in new if w not in old]
    if not gone and not come:  # another order, or a word more often
        gone, come = old, new
    return f"{_value(' '.join(gone))} -> {_value(' '.join(come))}"


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "missing"


def _value(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split()) or "nothing"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _few(sentences: list[str]) -> list[str]:
    more = len(sentences) - _MOST
    return sentences if more <= 0 else [*sentences[:_MOST], f"and {more} more like it"]


# "run": the step runs. "wait": it runs if a step before it changes one of its inputs. "error": it cannot run.
Fate = Literal["up-to-date", "run", "wait", "error", "ignore"]

_MOST_WRITERS = 2  # so many steps before it are named


@dataclass(frozen=True, kw_only=True)
class Forecast:
    fate: Fate
    reasons: tuple[str, ...] = ()


def forecast(tasks: Mapping[str, Task], names: Iterable[str], state: State) -> dict[str, Forecast]:
    """Return the forecast of each step in `names` and of their dependencies, dependencies first. `tasks`: of a
    TaskControl, whose `task_dep` also has the steps that write a step's inputs."""
    writers = {path: task.name for task in tasks.values() for path in task.targets}
    forecasts: dict[str, Forecast] = {}
    visited: set[str] = set()

    def visit(name: str) -> None:
        if name not in visited:
            visited.add(name)
            for dependency in tasks[name].task_dep:
                visit(dependency)
            if isinstance(task := tasks[name], StepTask):
                forecasts[name] = _forecast_step(task, state, writers, forecasts)

    for name in names:
        visit(name)
    return forecasts


def fate_of(task: Task, forecasts: Mapping[str, Forecast]) -> Fate:
    """Return the fate of a step; of a group, the most severe fate of its steps."""
    if task.name in forecasts:
        return forecasts[task.name].fate
    fates = {forecasts[name].fate for name in task.task_dep if name in forecasts}
    order: tuple[Fate, ...] = ("error", "run", "wait")
    return next((fate for fate in order if fate in fates), "up-to-date")


@dataclass(frozen=True)
class Expected:
    """The expected seconds of each step that runs, known when the run begins, and the reason why it runs."""

    seconds: Mapping[str, float]
    reasons: Mapping[str, str]
    cores: int

    def left(self, done: set[str]) -> float:
        """Return at most how many seconds are left: a step that waits for another may turn out up to date."""
        return sum(seconds for step, seconds in self.seconds.items() if step not in done) / self.cores


def expected(control: TaskControl, state: State, *, cores: int) -> Expected:
    """Estimate each step by its last duration, else by the mean of its group, else 0."""
    forecasts = forecast(control.tasks, control.selected_tasks, state)
    seconds = estimated(state.journal.durations(), usual={}, least=0.0)
    running = {step: seconds(step) for step, one in forecasts.items() if one.fate in ("run", "wait")}
    return Expected(running, {step: "; ".join(one.reasons) for step, one in forecasts.items() if one.reasons}, cores)


def _forecast_step(
    task: StepTask, state: State, writers: Mapping[str, str], forecasts: Mapping[str, Forecast]
) -> Forecast:
    if state.status_is_ignore(task):
        return Forecast(fate="ignore", reasons=("`doit ignore` excludes it",))
    # The digest of an input that another step will write is not known yet.
    unsettled = {p: writers[p] for p in task.file_dep if p in writers and forecasts[writers[p]].fate != "up-to-date"}
    try:
        inputs, outputs = state.digests(task)
    except OSError as error:
        return Forecast(fate="error", reasons=(f"{error.filename}: {error.strerror}",))
    unsettled = {state.relative(path): writer for path, writer in unsettled.items()}
    if lacking := [path for path in state.missing_inputs(task, inputs) if path not in unsettled]:
        return Forecast(fate="error", reasons=(f"its input {lacking[0]} does not exist, and no step writes it",))
    before = state.journal.detail(task.name)
    known = before["inputs"] if before else {}
    inputs |= {path: known[path] for path in unsettled if path in known}
    detail = step_detail(task, inputs, outputs)
    if state.is_up_to_date(task.name, detail):
        return Forecast(fate="wait" if unsettled else "up-to-date", reasons=tuple(_wait_reasons(unsettled)))
    if before is None:
        never = "did not succeed yet" if task.name in state.journal.steps else "never ran"
        return Forecast(fate="run", reasons=(never,))
    reasons = differences(before, detail, state.journal.meaning)
    if state.journal.key(task.name) is None:
        reasons.append("did not succeed when it last ran, or was forgotten")
    return Forecast(fate="run", reasons=tuple(reasons))


def _wait_reasons(unsettled: Mapping[str, str]) -> Iterator[str]:
    """Yield a reason per step that writes inputs of the waiting one."""
    by_writer: dict[str, list[str]] = {}
    for path, writer in sorted(unsettled.items()):
        by_writer.setdefault(writer, []).append(path)
    for count, (writer, paths) in enumerate(by_writer.items()):
        if count == _MOST_WRITERS:
            yield f"or {len(by_writer) - _MOST_WRITERS} more steps like it"
            return
        more = f" or {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"after {writer}, if {paths[0]}{more} changes"
