"""Look up, fetch and store entries, in threads of its own, so that a step waits at most a moment for a slow server.

An entry has two parts in a store, as an action of Bazel's remote cache has: under /ac/ and the step's key an
ActionResult with a record (JSON), under /cas/ and its digest the blob. The record names the step, the seconds that it
took, the digests of what it wrote, which serve to look ahead, and who signed key and blob.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from opmatrix.basics.errors import OpmatrixError, one_line, printable
from opmatrix.basics.features import provided
from opmatrix.records.step import Step
from opmatrix.shared_cache import entry as action_result
from opmatrix.shared_cache.entry import Entry, EntryError, message, pack, unpack
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.store import Store, StoreError, TooLargeError

PATIENCE = 2.0
"""Seconds in all that a run waits for a store that is slow or gone."""
_USUAL = 0.1  # seconds of a wait that are not slow
_ENTRY_WORTH = 0.2  # seconds that asking for an entry may take in addition: nothing asks for it ahead of need
_BLOB_WORTH = 5.0  # seconds that the sources of a project may take in addition
_THREADS = 16
# The order of what the threads do: what a step waits for, a blob that one will need, a look-up ahead of need, the end.
_NEEDED, _BLOB, _AHEAD, _END = range(4)
_MOST_HELD = 256_000_000  # bytes of blobs that were fetched ahead of need
_LARGEST = 2_000_000_000  # bytes of a blob
_LONGEST = 1e6  # seconds of a step
_SHOWN = 200  # characters of a step's name

T = TypeVar("T")
Key = str
"""A sha256 as hexadecimal digits: of all that the result of a step depends on."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a store has under a key. `outputs`: digests by path; only a hint, until the blob has come."""

    step: str
    seconds: float
    outputs: Mapping[str, str]
    blob: str
    size: int
    signer: str | None  # name and fingerprint of the key


@dataclass(frozen=True, kw_only=True)
class Hit:
    record: Record
    entry: Entry


class Client:
    """The shared cache of a run. Any thread may call it. `warn` takes one message about the store, at most."""

    def __init__(self, settings: CacheSettings, store: Store, *, root: Path, warn: Callable[[str], None]) -> None:
        self._settings, self._store, self._root, self._warn = settings, store, root, warn
        self._guard = threading.Lock()
        self._patience = PATIENCE
        self._late_until = 0.0  # up to when waits have used it
        self.lost = ""  # why the store is no longer asked
        self._work: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._asked_for = itertools.count()
        self._threads = 0
        self._queued: dict[Key, Callable[[], None]] = {}  # the look-ups that have not begun
        self._records: dict[Key, Future[Record | None]] = {}
        self._blobs: dict[Key, Future[bytes | None]] = {}
        self._held = 0
        self._unstored = 0  # entries that are still to be stored
        self._stored_at = time.monotonic()
        self._stored = threading.Condition(self._guard)
        self._refused = 0
        self.damaged: dict[Key, str] = {}  # what is wrong with an entry that was fetched in vain

    def look_up(self, key: Key, then: Callable[[Record | None], None] | None = None) -> None:
        """Look a key up in the background, once, and its blob after it; `then` gets what was found."""
        with self._guard:
            if key in self._records or self.lost:
                return
            found = self._records[key] = Future()

        def ask() -> None:
            with self._guard:
                if self._queued.get(key) is not ask:
                    return  # asked before its turn
                del self._queued[key]
            record = self._ask(lambda: self._record(key))
            if record:
                with self._guard:  # a blob ahead of need, if there is room
                    if has_room := self._held + record.size <= _MOST_HELD:
                        self._held += record.size
                if has_room:
                    coming = self._asked(lambda: self._blob(key, record), order=_BLOB)
                    with self._guard:
                        self._blobs[key] = coming
            _answer(found, record)
            if then:
                then(record)

        with self._guard:
            self._queued[key] = ask
        self.in_background(ask, order=_AHEAD)

    def fetch(self, key: Key, step: Step) -> Hit | None:
        """Return the entry of a step, or None, after at most what is left of PATIENCE."""
        self.look_up(key)
        if ask := self._queued.get(key):
            self.in_background(ask)
        if not (looked := self._records.get(key)) or not (record := self._wait(looked)):
            return None
        with self._guard:
            coming = self._blobs.pop(key, None)
            if coming is None:
                self._held += record.size
        coming = coming or self._asked(lambda: self._blob(key, record))
        blob = self._wait(coming, worth=min(record.seconds, step.seconds))
        with self._guard:
            self._held -= record.size
        if blob is None:
            return None
        try:
            return Hit(record=record, entry=unpack(blob, step, self._root))
        except EntryError as error:
            self.damaged[key] = f"{step.task}: {error}"
            return None

    def fetch_again(self, key: Key, step: Step) -> Hit | None:
        """Return the entry of a step that was not there when it was looked up."""
        with self._guard:
            self._records.pop(key, None)
        return self.fetch(key, step)

    def get_entry(self, key: Key) -> bytes | None:
        """Return what is under /ac/ and a key, after at most what is left of PATIENCE."""
        return self._wait(self._asked(lambda: self._store.get("ac", key)), worth=_ENTRY_WORTH)

    def store(self, key: Key, step: Step, entry: Entry, *, seconds: float) -> None:
        """Store an entry in the background."""
        if self.lost:
            return
        with self._guard:
            self._unstored += 1
            self._stored_at = time.monotonic()

        def put() -> None:
            try:
                self._ask(lambda: self._put(key, step, entry, seconds=seconds))
            finally:
                with self._guard:
                    self._unstored -= 1
                    self._stored_at = time.monotonic()
                    self._stored.notify_all()

        self.in_background(put)

    def get_blob(self, digest: str) -> bytes | None:
        """Return the blob of a digest, or None; after at most what is left of PATIENCE."""
        blob = self._wait(self._asked(lambda: self._store.get("cas", digest)), worth=_BLOB_WORTH)
        return blob if blob is not None and hashlib.sha256(blob).hexdigest() == digest else None

    def put_blob(self, content: bytes) -> str:
        """Store a blob, after at most what is left of PATIENCE, and return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        self._wait(self._asked(lambda: self._store.put("cas", digest, content)), worth=_BLOB_WORTH)
        return digest

    def flush(self, patience: float | None = None) -> None:
        """Wait until all entries are stored, while at least one is in each `patience` seconds: what is left of
        PATIENCE."""
        with self._guard:
            patience = self._patience if patience is None else patience
            while self._unstored and not self.lost:
                if (left := self._stored_at + patience - time.monotonic()) <= 0:
                    break
                self._stored.wait(left)
            unstored = self._unstored
        if unstored and not self.lost:
            self._give_up(f"it stored nothing for {patience:.1f} s; {unstored} results are not in it")

    def close(self) -> None:
        """Wait as `flush` does, and say what was refused."""
        self.flush()
        for _ in range(self._threads):
            self._work.put((_END, 0, None))
        if self._refused:
            why = "no signer in pyproject.toml signed them"
            self._warn(f"{self._refused} results of the shared cache were not taken: {why}")
        if self.damaged:
            more = f", and {len(self.damaged) - 1} more" if len(self.damaged) > 1 else ""
            first = next(iter(self.damaged.values()))
            self._warn(_line(f"damaged in the shared cache, so it was computed: {first}{more}"))
        if not self.lost:
            self._store.close()

    def _record(self, key: Key) -> Record | None:
        content = self._store.get("ac", key)
        if content is None:
            return None
        try:
            blob, size, told = action_result.decode(content)
            both = json.loads(told)
            text, signature = str(both["record"]), both.get("signature")
            read = json.loads(text)
            outputs = {str(path): str(digest) for path, digest in read["outputs"].items()}
            record = Record(step=_line(str(read["step"])[:_SHOWN]), seconds=float(read["seconds"]), outputs=outputs,
                            blob=blob, size=size, signer=None)  # fmt: skip
            if not 0 <= record.seconds < _LONGEST:
                raise ValueError(f"{record.seconds} seconds")
            signed = message(key=key, blob=blob, record=text.encode())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise StoreError(f"{self._store.url} answers with something else than results of steps") from error
        if not 0 <= size <= _LARGEST:
            return None
        if not self._settings.signers:
            return record
        signature = signature if isinstance(signature, str) else ""
        signing = provided("signing")
        if (name := signing.verify(signed, signature, self._settings.signers)) is None:
            with self._guard:
                self._refused += 1
            return None
        return replace(record, signer=f"{name} {signing.fingerprint(signature)}")

    def _put(self, key: Key, step: Step, entry: Entry, *, seconds: float) -> None:
        blob = pack(entry)
        digest = hashlib.sha256(blob).hexdigest()
        record = json.dumps({"step": step.task, "seconds": round(seconds, 3), "outputs": entry.digests})
        told = {"record": record}
        if self._settings.key:
            signed = message(key=key, blob=digest, record=record.encode())
            told["signature"] = provided("signing").sign(signed, self._settings.key)
        self._store.put("cas", digest, blob)  # first: servers refuse an action whose blob they do not have
        self._store.put("ac", key, action_result.encode(digest, len(blob), json.dumps(told).encode()))

    def _asked(self, function: Callable[[], T | None], *, order: int = _NEEDED) -> Future[T | None]:
        """Call a function that asks the store in the background."""
        coming: Future[T | None] = Future()
        self.in_background(lambda: _answer(coming, self._ask(function)), order=order)
        return coming

    def _blob(self, key: Key, record: Record) -> bytes | None:
        try:
            blob = self._store.get("cas", record.blob, record.size)
        except TooLargeError:
            self.damaged[key] = f"{record.step}: the blob is larger than its entry says"
            return None
        if blob is not None and hashlib.sha256(blob).hexdigest() != record.blob:
            self.damaged[key] = f"{record.step}: the blob has another digest than its name"
            return None
        return blob

    def _wait(self, coming: Future[T | None], *, worth: float = 0.0) -> T | None:
        """Return what comes; None once the patience is spent. An entry that saves `worth` seconds may take as long."""
        began = time.monotonic()
        try:
            return None if self.lost else coming.result(max(_USUAL, self._patience) + worth)
        except FutureTimeout:
            self._give_up("it is slow")
            return None
        finally:
            now = time.monotonic()
            with self._guard:  # what steps wait for at the same time delays the run once
                if now - began > _USUAL + worth:
                    self._patience -= max(0.0, now - max(began + worth, self._late_until))
                    self._late_until = now
            if self._patience <= 0:
                self._give_up("it is slow")

    def _ask(self, function: Callable[[], T]) -> T | None:
        """Call a function that asks the store; None if it fails, and the store is asked no more."""
        return None if self.lost else self._tried(function)

    def _tried(self, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except (OpmatrixError, OSError) as error:
            self._give_up(str(error))
        except Exception as error:  # what nobody foresaw of an answer: the thread goes on, and a step does not wait
            self._give_up(f"{self._store.url}: {type(error).__name__}: {error}")
        return None

    def _give_up(self, why: str) -> None:
        with self._guard:
            if self.lost:
                return
            self.lost = why
            records, blobs = [*self._records.values()], [*self._blobs.values()]
            self._stored.notify_all()
        self._warn(_line(f"the shared cache is left out from here on: {why}"))
        for record in records:
            _answer(record, None)
        for blob in blobs:
            _answer(blob, None)

    def in_background(self, work: Callable[[], None], *, order: int = _NEEDED) -> None:
        """Call a function in one of the client's threads, which do not keep the process from ending."""
        with self._guard:
            self._work.put((order, next(self._asked_for), work))
            if self._threads < _THREADS:
                self._threads += 1
                threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while work := self._work.get()[2]:
            self._tried(work)


def _line(text: str) -> str:
    """Return a text of others as one line without control characters."""
    return printable(one_line(text))


def _answer(future: Future[T], value: T) -> None:
    with suppress(InvalidStateError):  # the store was given up meanwhile
        future.set_result(value)
