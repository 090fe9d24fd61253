"""A project on a worker: it plans from the sources that a client sent, and runs steps of it in warm servers.

A program of its own, in the folder of the project: ``python -m opmatrix.addons.team ENTRY PLAN``. Requests and answers
are lines of JSON. It trusts no key that a client names: it plans each step itself, computes the key from its own files,
programs and packages, and refuses a step whose key is another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from opmatrix.addons.team import sources
from opmatrix.basics.errors import OpmatrixError, disk_fault
from opmatrix.basics.files import Mark, digest_of, mark, sha256
from opmatrix.engine.database import Fingerprints
from opmatrix.engine.forecast import differences
from opmatrix.engine.fork_server import find_function
from opmatrix.engine.lock import hold
from opmatrix.engine.saved_files import Marks, marks_of, of_program
from opmatrix.engine.server_pool import Ending, Pool
from opmatrix.engine.shared_results import key_of
from opmatrix.engine.step_failure import read_output
from opmatrix.engine.step_runner import JOBS
from opmatrix.engine.tasks import ENVIRONMENT
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.records.step import Step
from opmatrix.shared_cache import entry as entries
from opmatrix.shared_cache import salt, settings
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.entry import EntryError
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.stores import open_store

_TIMEOUT = 30.0  # seconds of a request to the store
_ROOM = 50_000_000  # bytes; a step that fails with less left on the disk may have failed for that

Request = Mapping[str, Any]
"""What `opmatrix.addons.team.remote.Remote` asks: the step and its key, with all that the key is made from; `needs`,
the keys of the steps whose outputs it reads, or None for one that each machine makes itself."""
Answer = dict[str, Any]
"""`done`, with `seconds`, `cpu` and `memory`; or `ending`, with `log` and `files`, of a step that failed; or `refused`,
the reason, and whether this worker is `broken`: it could not do any step."""


class RefusedError(OpmatrixError):
    """A step that this worker does not run. `broken`: the reason is the worker, not the step."""

    def __init__(self, reason: str, *, broken: bool = False) -> None:
        super().__init__(reason)
        self.broken = broken


class OutdatedError(OpmatrixError):
    """This process has imported another opmatrix, or other packages, than are installed now: a new one can run it."""


class ProjectServer:
    """The project in the current folder. Any thread may call `answer`."""

    def __init__(self, paths: Paths, *, entry: str, plan: str, lock: int) -> None:
        self._paths, self._plan = paths, plan
        self._pool = Pool(paths, entry=entry, lock=lock)
        self._program: tuple[Marks, Sequence[str]] | None = None  # what this process and its servers have imported
        self._files = Fingerprints({})
        self._changed = threading.Condition()
        self._planned_for: str | None = None  # the run whose sources and cells are planned
        self._running = 0
        self._steps: Mapping[str, Step] = {}
        self._salts: dict[str | None, list[str]] = {}
        self._has: dict[str, str | None] = {}  # by step: the key of the outputs that are here
        self._making: dict[str, threading.Lock] = {}
        self._client: Client | None = None
        self._url = ""  # of the shared cache

    def answer(self, request: Request) -> Answer:
        """Run a step, or refuse it."""
        try:
            with self._planned(request):
                return self._run(request)
        except OutdatedError:
            return {"again": True}
        except RefusedError as error:
            return {"refused": str(error), "broken": error.broken}
        except OSError as error:
            return {"refused": disk_fault(error) or str(error), "broken": True}
        except (OpmatrixError, EntryError) as error:
            return {"refused": str(error), "broken": False}

    def close(self) -> None:
        """End the servers."""
        self._pool.close()

    @contextmanager
    def _planned(self, request: Request) -> Iterator[None]:
        """Have the sources and the plan of a request while its step runs. Those of other runs wait.

        Each run plans anew: a compiler, a package or an environment of this machine may be another one since the last.
        """
        run = request["run"]
        with self._changed:
            self._changed.wait_for(lambda: self._planned_for == run or not self._running)
            if self._planned_for != run:
                self._planned_for = None
                self._bring_up_to_date(request)
                self._planned_for = run
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _bring_up_to_date(self, request: Request) -> None:
        if self._program and _program(self._paths) != self._program:
            raise OutdatedError
        root, self._url = self._paths.root, os.environ.get(settings.URL) or str(request["cache"])
        self._paths = Paths(root)  # which folders it has depends on the sources
        store = open_store(self._url, timeout=_TIMEOUT)
        client = Client(CacheSettings(url=self._url), store, root=root, warn=_warn)
        blob = client.get_blob(request["sources"])
        client.close()
        if blob is None:
            raise RefusedError(f"the sources are not in the shared cache {store.url}", broken=True)
        sources.write(sources.unpack(blob), self._paths)
        self._program = _program(self._paths)
        if self._link_environments(request["environments"]):
            self._pool.end_servers()
        choice = Choice(**request["choice"])
        plan: Callable[..., Iterable[Step]] = find_function(self._plan)
        self._steps = {step.task: step for step in plan(self._paths, choice=choice, environ=os.environ)}
        self._salts.clear()
        self._has = {name: key for name, key in self._has.items() if key is not None}
        self._open_client()

    def _open_client(self) -> None:
        if self._client:
            self._client.close()
        write = {settings.URL: self._url, settings.MODE: "write"}
        read = settings.read(self._paths, {**os.environ, **write})
        assert read
        self._client = Client(read, open_store(self._url, timeout=_TIMEOUT), root=self._paths.root, warn=_warn)

    def _link_environments(self, of_client: tuple[str, int, int] | None) -> bool:
        """Link the folder of the matrix's environments: that of a client on this machine, else one that all workers of
        this machine share, so that each environment is made once. Return whether it is another one than before."""
        there = Path(of_client[0]) if of_client else None
        with suppress(OSError):
            if there and of_client and (there.stat().st_dev, there.stat().st_ino) == tuple(of_client[1:]):
                return _link(self._paths.environment(""), there)
        pinned = [path for folder in self._paths.requirements for path in sorted(folder.glob("*.txt"))]
        pins = hashlib.sha256("".join(map(sha256, pinned)).encode()).hexdigest()[:16]
        folder = cache_folder(os.environ) / "environments" / pins
        folder.mkdir(parents=True, exist_ok=True)
        return _link(self._paths.environment(""), folder)

    def _run(self, request: Request) -> Answer:
        name, root = request["step"], self._paths.root
        if (step := self._steps.get(name)) is None:
            raise RefusedError(f"here the sources plan no step {name}")
        with self._changed:
            if self._client is None or self._client.lost:
                self._open_client()
            client = self._client
        assert client
        for other, key in request["needs"].items():
            self._provide(other, key, client)
        self._check_key(step, request)
        with self._making.setdefault(name, threading.Lock()):
            self._has.pop(name, None)
            for path in (*step.records, *(() if step.group == "compile" else step.writes)):  # ninja compares its own
                Path(path).unlink(missing_ok=True)
            ending = self._execute(step)
            log = self._paths.log(name)
            if not ending.done:
                if shutil.disk_usage(root).free < _ROOM:
                    raise RefusedError(f"its disk is full: '{root}'", broken=True)
                files = {
                    entries.relative(p, root): Path(p).read_text(encoding="utf-8")
                    for p in step.records
                    if Path(p).is_file()
                }
                return {
                    "ending": vars(ending),
                    "log": log.read_text(errors="replace", encoding="utf-8"),
                    "files": files,
                }
            if missing := [path for path in step.writes if not Path(path).is_file()]:
                raise RefusedError(f"the step ended well, but did not write {entries.relative(missing[0], root)}")
            digests = {path: digest for path in entries.discovered(step) if (digest := self._digest(path))}
            entry = entries.read(step, root, inputs=digests, log=log.read_text(errors="replace", encoding="utf-8"))
            client.store(request["key"], step, entry, seconds=ending.seconds)
            client.flush(_TIMEOUT)
            if client.lost:
                raise RefusedError("it cannot write to the shared cache", broken=True)
            self._has[name] = request["key"]
        return {"done": True, "seconds": ending.seconds, "cpu": ending.cpu, "memory": ending.memory}

    def _execute(self, step: Step) -> Ending:
        return self._pool.run(
            (*step.command, *step.asks),
            server=step.server_name,
            log=self._paths.log(step.task),
            seconds=step.seconds,
            megabytes=step.megabytes,
            written=step.written,
            environment={JOBS: "1"},
        )

    def _provide(self, name: str, key: str | None, client: Client) -> None:
        """Have the outputs of a step that another one reads: from the shared cache, or made here."""
        if (step := self._steps.get(name)) is None:
            raise RefusedError(f"here the sources plan no step {name}")
        with self._making.setdefault(name, threading.Lock()):
            if name in self._has and self._has[name] == key:
                return
            self._has.pop(name, None)
            if key is None:
                self._make(step)
            else:
                self._fetch(step, key, client)
            self._has[name] = key

    def _fetch(self, step: Step, key: str, client: Client) -> None:
        root = self._paths.root
        if (hit := client.fetch_again(key, step)) is None:
            why = client.damaged.get(key) or f"{step.task} is not in the shared cache"
            raise RefusedError(why, broken=bool(client.lost))
        for path, digest in hit.entry.inputs.items():
            if self._digest(entries.here(path)) != digest:
                raise RefusedError(f"{step.task} was made with another {path}")
        entries.write(hit.entry, step, root)

    def _digest(self, path: str) -> str | None:
        return digest_of(path if path.startswith("/") else f"{self._paths.root}/{path}")

    def _make(self, step: Step) -> None:
        """Run a step whose result does not travel: what this machine has."""
        before = self._stamp(step)
        ending = self._execute(step)
        if not ending.done:
            said = read_output(self._paths.log(step.task)).splitlines()
            raise RefusedError(f"{step.task} failed here: {said[0] if said else 'it printed nothing'}")
        if step.group == ENVIRONMENT:
            self._salts.pop(step.name, None)
            if self._stamp(step) != before:  # its servers have imported what was there
                self._pool.end_servers(step.name)

    def _stamp(self, step: Step) -> Mark | None:
        return mark(str(self._paths.stamp(step.name))) if step.group == ENVIRONMENT else None

    def _check_key(self, step: Step, request: Request) -> None:
        """Raise RefusedError if the step would be made from something else than where the client is."""
        root = self._paths.root
        inputs = {entries.relative(path, root): self._files.digest(path) for path in step.reads}
        if step.environment not in self._salts:
            self._salts[step.environment] = salt.parts(self._paths, step.environment)
        around = self._salts[step.environment]
        if key_of(step, inputs, salt.digest(around)) == request["key"]:
            return
        there = {"config": request["config"], "command": request["command"], "inputs": request["inputs"], "outputs": {}}
        here = {"config": step.config, "command": list(step.command), "inputs": inputs, "outputs": {}}
        lines = differences(there, here, lambda _: None)
        lines += [f"{part} is not the same here" for part in request["salt"] if part not in around]
        raise RefusedError(f"it would be made from something else (there -> here): {'; '.join(lines) or 'unknown'}")


def _program(paths: Paths) -> tuple[Marks, Sequence[str]]:
    """Return the files of opmatrix, and the packages that steps import, as they are now."""
    return marks_of(of_program(paths)), salt.parts(paths, None)


def _link(link: Path, target: Path) -> bool:
    """Let a link point to a folder; return whether it did not before."""
    if link.is_symlink() and link.readlink() == target:
        return False
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return True


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def serve(server: ProjectServer, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests, each in a thread, until the client ends."""
    guard = threading.Lock()

    def work(request: Request) -> None:
        try:
            answer = server.answer(request)
        except Exception as error:  # the client must not wait for an answer that never comes
            import traceback

            traceback.print_exc()
            answer = {"refused": f"{type(error).__name__}: {error}", "broken": True}
        with guard:
            answers.write(json.dumps({"id": request["id"], **answer}).encode() + b"\n")
            answers.flush()

    for line in requests:
        threading.Thread(target=work, args=(json.loads(line),), daemon=True).start()


def main(entry: str, plan: str) -> None:
    """Serve the project in the current folder, until standard input ends."""
    paths = Paths(Path.cwd())
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else prints goes to the log
    with hold(paths.lock) as lock:
        server = ProjectServer(paths, entry=entry, plan=plan, lock=lock)
        try:
            serve(server, sys.stdin.buffer, answers)
        finally:
            server.close()
            os._exit(0)  # threads that wait for a step would keep the process
