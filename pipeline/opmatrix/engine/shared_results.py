"""The shared cache of a run: which key a step has, which entries it will need, what came from where."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from opmatrix.basics.errors import Cause, many, one_line, printable
from opmatrix.basics.features import provided
from opmatrix.basics.files import LACKS, write_text
from opmatrix.engine.database import Fingerprints
from opmatrix.engine.step_failure import StepFailed
from opmatrix.engine.tasks import ENVIRONMENT, StepTask
from opmatrix.engine.up_to_date import State, step_detail
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from opmatrix.shared_cache import entry as entries
from opmatrix.shared_cache.client import Client, Hit, Key, Record
from opmatrix.shared_cache.entry import Entry
from opmatrix.shared_cache.salt import digest, parts
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.stores import open_store

FORMAT = "1"
"""Of keys and entries: another format shares nothing with this one."""
SHARED = ("codegen", "compile", "data", "cases", "draw-inputs", "register", "export", "verify")
"""The groups whose results travel: tests/incremental/test_steps_travel.py shows it of each. The others find what this
machine has, or show what happened here. An environment has an entry of what is in it, for `doit --from-cache`."""
_ENVIRONMENTS = f"{Paths(Path()).environment('')}/"

BUILDS = ("codegen", "compile", "export")
"""Those of them that are taken with `prove = "local"`: what is built, and then verified here. What says whether it is
right is computed here: verdicts, records of checks, and the expected outputs with which they compare."""

_LARGEST_FOUND = 1 << 26  # bytes of an input that a step found, such as a header
_TIMEOUT = 30.0  # seconds of a request. A step waits for less: opmatrix.shared_cache.client.PATIENCE.


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the result of a step came from, and the seconds that it took there. `signer`: the name of who signed it,
    where pyproject.toml names signers."""

    url: str
    signer: str | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a step ended that a worker ran. `memory`: as in `Ending`. `origin`: where its outputs came from; None for one
    that failed."""

    seconds: float
    cpu: float
    memory: int = 0
    origin: Origin | None = None
    failure: StepFailed | None = None


class Workers(Protocol):
    """The workers of a run, on this machine or others: `opmatrix.addons.team` has them."""

    def run(self, task: StepTask, begins: Callable[[], None]) -> Ended | None:
        """Run a step on a worker, and call `begins` before. None: no worker ran it, so it is to run here. Raises
        OSError."""

    def close(self) -> None:
        """End the connection, and tell the user who ran what."""


class SharedResults:
    """Fetches and stores the results of the steps of a run. Worker threads call `fetch` and `store`."""

    def __init__(
        self,
        settings: CacheSettings,
        *,
        paths: Paths,
        state: State,
        tasks: Iterable[StepTask],
        warn: Callable[[str], None],
        only_shared: bool = False,
    ) -> None:
        self._only_shared = only_shared
        store = open_store(settings.url, timeout=_TIMEOUT)
        if settings.key and settings.mode == "write":
            provided("signing").check_key(settings.key, settings.signers)
        self._client = Client(settings, store, root=paths.root, warn=warn)
        self.address = settings.url  # of the store, as it was set
        self._url, self._settings, self._paths, self._state, self._warn = store.url, settings, paths, state, warn
        self._equal, self._unknown = 0, 0  # steps that mode "check" compared, and those without an entry
        self._around = cache(lambda environment: parts(paths, environment))
        self._guard = threading.Lock()
        self._tasks = tuple(tasks)
        self._undescribed = {task.step.name: task for task in self._tasks if task.step.group == ENVIRONMENT}
        self._ahead: _Ahead | None = None
        self._durations: Mapping[str, float] = {}
        self._writers: dict[str, StepTask] = {}  # by output, and by name
        self._storing: dict[Key, threading.Lock] = {}
        self._stored: set[Key] = set()  # what the store is known to have

    def fetch(self, task: StepTask) -> Origin | None:
        """Write the result of a step if the store has it. Raises OSError for a disk that cannot take it."""
        step = task.step
        # The entry of an environment is what it has, which keys contain. A run that computes nothing makes none.
        describes = self._only_shared and step.group == ENVIRONMENT and not self._paths.stamp(step.name).is_dir()
        if self._settings.mode == "check" or not (self._taken(step) or describes):
            return None
        with self._guard:
            if self._ahead is None:
                self._ahead = _Ahead(self._look_up, self._tasks, self._state)
                self._client.in_background(self._ahead.begin)
        return self._take(task, self._client.fetch(self._key(task), step))

    def _take(self, task: StepTask, hit: Hit | None) -> Origin | None:
        if hit is None or not self._has(hit.entry, task.step):
            return None
        entries.write(hit.entry, task.step, self._paths.root)
        origin = Origin(url=self._url, signer=hit.record.signer, seconds=hit.record.seconds)
        write_text(self._paths.log(task.name), hit.entry.log)
        self._ended(task)
        return origin

    def store(self, task: StepTask, *, seconds: float) -> StepFailed | None:
        """Store what a step wrote that has just run. With mode "check", compare it with what the store has; return the
        failure of a step that wrote something else here."""
        step, failure = task.step, None
        if step.environment and self._settings.mode == "write":
            with self._guard:
                environment = self._undescribed.pop(step.environment, None)
            if environment:  # store once what it has, also where an earlier run made it
                with suppress(OSError):
                    entry = entries.read(environment.step, self._paths.root, inputs={})
                    self._client.store(self._key(environment), environment.step, entry, seconds=0)
        if step.group in SHARED and self._settings.mode != "read":
            key = self._key(task)
            with suppress(OSError):  # removed meanwhile: the step fails in a moment
                entry = self._entry(task)
                if self._settings.mode == "write":
                    self._client.store(key, step, entry, seconds=seconds)
                else:
                    failure = self._compare(step, key, entry)
        self._ended(task)
        return failure

    # For the workers of a run (opmatrix.addons.team), which share nothing with it but the store.

    def travels(self, step: Step) -> bool:
        """Return whether a step may run on a worker."""
        return self._taken(step) and not self._client.lost

    def begin_providing(self) -> None:
        """Prepare `provide`, which any thread may call. Called by the thread that opened the state."""
        self._durations = self._state.journal.durations()
        self._writers = {path: other for other in self._tasks for path in other.targets}
        self._writers |= {other.name: other for other in self._tasks}

    def sources(self) -> list[str]:
        """Return the files that the steps of the run read and none of them writes."""
        written = {path for task in self._tasks for path in task.targets}
        return sorted({path for task in self._tasks for path in task.step.reads} - written)

    def put_blob(self, content: bytes) -> str | None:
        """Store a blob and return its digest, or None if the store is lost."""
        digest = self._client.put_blob(content)
        return None if self._client.lost else digest

    def described(self, task: StepTask) -> dict[str, Any]:
        """Return the key of a step, and all that it is made from."""
        step, inputs = task.step, dict(self._state.inputs_at_start(task))
        return {"key": self._key(task), "config": step.config, "command": [*step.command], "inputs": inputs,
                "salt": self._around(step.environment)}  # fmt: skip

    def provide(self, task: StepTask) -> dict[str, Key | None] | None:
        """Store what a step needs that other steps wrote, where the store lacks it. Return the keys of those steps, by
        name; a step that each machine runs itself has none. Return None if the store cannot have all. Raises
        OSError."""
        needed = dict.fromkeys([*task.step.reads, *task.step.after])
        others = {found.name: found for name in needed if (found := self._writers.get(name))}
        if not {*task.step.after} <= others.keys():
            return None  # with doit's --single
        keys = {name: self._provided(other) if other.step.group in SHARED else None for name, other in others.items()}
        return None if self._client.lost else keys

    def _provided(self, task: StepTask) -> Key:
        key = self._key(task)
        with self._guard:
            storing = self._storing.setdefault(key, threading.Lock())
        with storing:
            if key not in self._stored and self._client.get_entry(key) is None:
                self._client.store(key, task.step, self._entry(task), seconds=self._durations.get(task.name, 0.0))
                self._client.flush(_TIMEOUT)
            self._stored.add(key)
        return key

    def take_computed(self, task: StepTask) -> Origin | None:
        """Write the result of a step that a worker has stored. Raises OSError."""
        key = self._key(task)
        origin = self._take(task, self._client.fetch_again(key, task.step))
        if origin:
            self._stored.add(key)
        return origin

    def close(self) -> None:
        """Wait until what the run computed is stored."""
        self._client.close()
        if self._settings.mode == "check":
            unknown = f"; it has no entry for {many(self._unknown, 'step')}" if self._unknown else ""
            self._warn(f"{many(self._equal, 'step')} wrote the same as in the shared cache {self._url}{unknown}")

    def _taken(self, step: Step) -> bool:
        """Return whether a step's result may come from elsewhere."""
        return step.group in (SHARED if self._settings.prove == "shared" else BUILDS)

    def _has(self, entry: Entry, step: Step) -> bool:
        """Return whether the inputs that a step found elsewhere are the same here, such as headers of the system."""
        lost = {*entries.listed(entry, step, self._paths.root)} - {*entry.inputs}  # they were not there any more
        try:
            same = all(self._is_same(path, digest) for path, digest in entry.inputs.items())
            return same and not any((self._paths.root / entries.here(path)).exists() for path in lost)
        except OSError:  # what cannot be read here, or is no file, is not the same
            return False

    def _is_same(self, input_found: str, digest: str) -> bool:
        there = self._paths.root / (path := entries.here(input_found))
        if self._only_shared and not there.exists() and path.startswith(_ENVIRONMENTS):
            return True  # a header of a torch whose version is in the key
        return (LACKS in input_found or there.stat().st_size <= _LARGEST_FOUND) and self._state.digest(path) == digest

    def _entry(self, task: StepTask) -> Entry:
        found = {path: self._state.digest(path) for path in entries.discovered(task.step)}
        log = self._paths.log(task.name).read_text(errors="replace", encoding="utf-8")
        return entries.read(task.step, self._paths.root, inputs={p: d for p, d in found.items() if d}, log=log)

    def _compare(self, step: Step, key: Key, here: Entry) -> StepFailed | None:
        """Return the failure of a step whose entry in the store is damaged, or has other files."""
        hit = self._client.fetch(key, step)
        if damage := self._client.damaged.get(key):
            lines, summary = [damage], f"its entry in the shared cache {self._url} is damaged: {damage}"
        elif hit is None or not self._has(hit.entry, step):
            with self._guard:
                self._unknown += 1
            return None
        elif differing := differences(here, hit.entry):
            lines = [f"{path}: {how}" for path, how in differing]
            signer = f", signed by {hit.record.signer}" if hit.record.signer else ""
            differ = "differs" if len(lines) == 1 else "differ"
            files = ", ".join(path for path, _ in differing)
            summary = f"{many(len(lines), 'output')} {differ} from the shared cache {self._url}{signer}: {files}"
        else:
            with self._guard:
                self._equal += 1
            return None
        return StepFailed(step, summary=summary, output="\n".join(lines), told=Cause(sentence=summary))

    def _key(self, task: StepTask, inputs: Mapping[str, str | None] | None = None) -> Key:
        found = self._state.inputs_at_start(task) if inputs is None else inputs
        return key_of(task.step, found, digest(self._around(task.step.environment)))

    def _look_up(self, task: StepTask, inputs: Mapping[str, str | None], then: Callable[[Record | None], None]) -> None:
        if self._taken(task.step):
            self._client.look_up(self._key(task, inputs), then)

    def _ended(self, task: StepTask) -> None:
        if self._ahead:
            self._ahead.ended(task)


def key_of(step: Step, inputs: Mapping[str, str | None], salt: str) -> Key:
    """Return the key of a step: a digest of all that its result depends on, the same in every clone."""
    parts = [FORMAT, step.task, step.config, step.command, sorted(inputs.items()), salt]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def differences(here: Entry, there: Entry) -> list[tuple[str, str]]:
    """Return each file or link that differs between what a step wrote here and an entry, and how: with both digests, or
    both targets. The log does not count."""
    where = "in the shared cache"
    return [
        *((path, f"sha256 {digest} here, {there.digests[path]} {where}")
          for path, digest in here.digests.items() if there.digests[path] != digest),
        *((path, f"points to {target} here, to {printable(one_line(there.links[path]))} {where}")
          for path, target in here.links.items() if there.links[path] != target),
        *((path, f"may be executed only {'here' if path in here.executable else where}")
          for path in sorted(here.executable ^ there.executable)),
    ]  # fmt: skip


class _Ahead:
    """Looks up the steps of a run before they are needed, by the digests that earlier entries say they have written.

    A wrong guess costs a request and nothing else: `SharedResults.fetch` computes each key from the files themselves.
    """

    def __init__(
        self,
        look_up: Callable[[StepTask, Mapping[str, str | None], Callable[[Record | None], None]], None],
        tasks: Iterable[StepTask],
        state: State,
    ) -> None:
        self._look_up, self._state = look_up, state
        self._tasks = {task.name: task for task in tasks}
        self._files = Fingerprints(dict(state.journal.files))  # its own: other threads use those of `state`
        self._guard = threading.RLock()
        self._digests: dict[str, str | None] = {}  # by path: the digests of what a step has written or will
        writers = {path: name for name, task in self._tasks.items() for path in task.targets}
        self._waits = {
            name: {writers[path] for path in task.file_dep if path in writers} | ({*task.step.after} & {*self._tasks})
            for name, task in self._tasks.items()
        }
        self._users: dict[str, list[str]] = {}
        for name, needed in self._waits.items():
            for other in needed:
                self._users.setdefault(other, []).append(name)

    def begin(self) -> None:
        for name in [name for name, needed in self._waits.items() if not needed]:
            self._consider(self._tasks[name])

    def ended(self, task: StepTask) -> None:
        """Take what a step has written."""
        self._settle(task, {self._state.relative(path): self._files.digest(path) for path in task.targets})

    def _consider(self, task: StepTask) -> None:
        """Look a step up whose inputs are known, unless it is up to date."""
        try:
            every, outputs = self._state.digests(task, self._digest)
        except OSError:
            return
        inputs = {path: every[path] for path in map(self._state.relative, task.file_dep)}
        if self._state.is_up_to_date(task.name, step_detail(task, every, outputs)):
            self._settle(task, outputs)
        else:
            self._look_up(task, inputs, lambda record: self._settle(task, record.outputs) if record else None)

    def _settle(self, task: StepTask, written: Mapping[str, str | None]) -> None:
        with self._guard:
            self._digests |= written
            ready = []
            for name in self._users.pop(task.name, ()):
                self._waits[name].discard(task.name)
                if not self._waits[name]:
                    ready.append(self._tasks[name])
        for other in ready:
            self._consider(other)

    def _digest(self, path: str) -> str | None:
        short = self._state.relative(path)
        return self._digests[short] if short in self._digests else self._files.digest(path)
