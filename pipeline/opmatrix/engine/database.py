"""The state database: what each step depended on when it last succeeded. A doit backend on sqlite3.

The sha256 of files. A file is read again only when its time stamps, size or inode have changed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import REMEDY, OpmatrixError
from opmatrix.basics.files import LACKS, NONE, Mark, mark, present, remove, settled, sha256
from opmatrix.records.step import Fingerprint

_TABLES = """
create table if not exists step (name text primary key, key text, detail text);
create table if not exists file (path text primary key, mtime int, ctime int, size int, inode int, digest text);
create table if not exists meaning (fingerprint text primary key, text text);
create table if not exists duration (name text primary key, seconds real);
create table if not exists origin (name text primary key, url text, signer text);
create table if not exists note (task text, field text, value text, primary key (task, field));
"""

VERSION = 1  # of what build/ holds: raised when the steps of an older opmatrix have other names or outputs

# Delete the meanings of fingerprints that no step's detail has any more.
_DELETE_UNUSED = """
with config(text) as (select json_extract(detail, '$.config') from step where detail is not null)
delete from meaning where fingerprint not in
(select part.value from config, json_each(case when json_valid(text) then text else '{}' end) as part)
"""


class StateError(OpmatrixError, exit_code=3):
    """The state database cannot be read or written."""


class Journal:
    """Commits after each step, so that a killed run keeps finished steps (doit writes at the end of a run, #463).

    Each step has a `key`, a hash over all that it depends on and has written, and a `detail`, what was hashed, to
    explain why a step runs. To forget a step clears its key and keeps its detail.
    """

    desc = "sqlite3, one commit per step"

    def __init__(self, name: str, codec: object, *, module_name: str | None = None) -> None:
        self.name = name
        path = Path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(path)
        except (sqlite3.DatabaseError, OSError, ValueError) as error:
            if not is_damage(error, path):
                raise StateError(f"cannot open {path}: {error}. {REMEDY}") from error
            broken = move_aside(path)
            print(f"{path} is not a usable database ({error}); it was moved to {broken}, and every step runs once "
                  "more", file=sys.stderr)  # fmt: skip
            self._open(path)

    def _open(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
        if self._database.execute("pragma user_version").fetchone()[0] < VERSION:
            if self._database.execute("select count(*) from sqlite_master").fetchone()[0]:
                self._database.close()
                for made in path.parent.iterdir():  # the lock is held by this doit; wheels/ holds downloads (.ci/run)
                    if made.name not in ("wheels", "lock"):
                        remove(made)
                print(f"{path.parent} was made by an older opmatrix, whose steps have other names: it was removed, and "
                      "every step runs once", file=sys.stderr)  # fmt: skip
                self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._database.execute(f"pragma user_version = {VERSION}")
        self._database.executescript("pragma journal_mode = wal; pragma synchronous = normal;" + _TABLES)
        self._keys: dict[str, str | None] = dict(self._database.execute("select name, key from step"))
        self._notes: dict[str, dict[str, Any]] = {}
        for task, field, value in self._database.execute("select task, field, value from note"):
            self._notes.setdefault(task, {})[field] = json.loads(value)
        self.files: dict[str, tuple[Mark, str]] = {  # the marks and digests of files that earlier commands read
            row[0]: ((row[1], row[2], row[3], row[4]), row[5]) for row in self._database.execute("select * from file")
        }

    # The interface of a doit backend. Its only value is whether a task is ignored.

    def get(self, task: str, field: str) -> Any:
        return self._notes.get(task, {}).get(field)

    def set(self, task: str, field: str, value: Any) -> None:
        self._notes.setdefault(task, {})[field] = value
        self._database.execute("insert or replace into note values (?, ?, ?)", (task, field, json.dumps(value)))

    def in_(self, task: str) -> bool:
        return self._keys.get(task) is not None or task in self._notes

    def remove(self, task: str) -> None:
        self.forget(task)
        if self._notes.pop(task, None):
            self._database.execute("delete from note where task = ?", (task,))

    def remove_all(self) -> None:
        self._database.executescript("update step set key = null; delete from note; delete from file;")
        self._keys = dict.fromkeys(self._keys)
        self._notes.clear()
        self.files.clear()

    def dump(self) -> None:
        self._database.close()

    # The interface for `State` and the commands.

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of all steps that ever ran."""
        return tuple(self._keys)

    def key(self, step: str) -> str | None:
        """Return the key of the last success, or None."""
        return self._keys.get(step)

    def detail(self, step: str) -> dict[str, Any] | None:
        """Return the parts of the last key, also of a forgotten one; None for a step that never ran."""
        row = self._database.execute("select detail from step where name = ?", (step,)).fetchone()
        try:
            return json.loads(row[0]) if row and row[0] else None
        except ValueError as error:
            raise sqlite3.DatabaseError(f"{step}: {error}") from error

    def record(self, step: str, *, key: str, detail: Mapping[str, Any]) -> None:
        self._keys[step] = key
        self._database.execute("insert or replace into step values (?, ?, ?)", (step, key, json.dumps(detail)))

    def explain(self, fingerprints: Iterable[Fingerprint]) -> None:
        """Store the meanings of the fingerprints of a new plan. Those of recorded steps stay."""
        rows = {str(fingerprint): fingerprint.explain() for fingerprint in set(fingerprints)}
        with self._database:  # commits, or rolls back
            self._database.execute("begin immediate")
            if self._database.execute("select count(*) from meaning").fetchone()[0] > 10 * len(rows) + 100:
                self._database.execute(_DELETE_UNUSED)
            self._database.executemany("insert or ignore into meaning values (?, ?)", rows.items())

    def meaning(self, fingerprint: str) -> str | None:
        """Return what was hashed into a fingerprint in a `detail`, as JSON, or None if unknown."""
        rows = self._database.execute("select text from meaning where fingerprint = ?", (fingerprint,))
        return next((str(text) for (text,) in rows), None)

    def took(self, step: str, seconds: float) -> None:
        self._database.execute("insert or replace into duration values (?, ?)", (step, seconds))

    def came_from(self, step: str, origin: tuple[str, str | None] | None) -> None:
        """Record from which shared cache a step's result came, and who signed it; None if it was computed here."""
        if origin:
            self._database.execute("insert or replace into origin values (?, ?, ?)", (step, *origin))
        else:
            self._database.execute("delete from origin where name = ?", (step,))

    def origins(self) -> dict[str, tuple[str, str | None]]:
        """Return the steps whose result came from a shared cache: its address, and who signed it."""
        return {name: (url, signer) for name, url, signer in self._database.execute("select * from origin")}

    def durations(self) -> dict[str, float]:
        """Return the seconds that each step last took."""
        return dict(self._database.execute("select name, seconds from duration"))

    def forget(self, step: str) -> None:
        """Forget that a step succeeded, but not that it ran."""
        if self._keys.get(step) is not None:
            self._database.execute("update step set key = null where name = ?", (step,))
        elif step not in self._keys:
            self._database.execute("insert into step values (?, null, null)", (step,))
        self._keys[step] = None

    def erase(self, steps: Iterable[str]) -> None:
        for step in steps:
            del self._keys[step]
            self._database.execute("delete from step where name = ?", (step,))
            self._database.execute("delete from duration where name = ?", (step,))
            self.came_from(step, None)

    def save_files(self, files: Mapping[str, tuple[Mark, str]]) -> None:
        self.files |= files
        rows = ((path, *mark, digest) for path, (mark, digest) in files.items())
        with self._database:  # commits, or rolls back
            self._database.execute("begin immediate")
            self._database.executemany("insert or replace into file values (?, ?, ?, ?, ?, ?)", rows)


def is_damage(error: Exception, state: Path) -> bool:
    """Return whether the state database is damaged, and not only its disk full or its folder read-only.

    Python's sqlite3 also raises OperationalError for bytes that cannot be decoded, and for damaged bytes in the header
    that read as a ban on writing.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return not isinstance(error, OSError)
    words = ("decode", "malformed", "unsupported file format", *(["readonly"] if os.access(state, os.W_OK) else []))
    return any(word in str(error) for word in words)


def describe(error: sqlite3.DatabaseError, state: Path) -> str:
    """Return the message for a state that cannot be used, and move a damaged one aside. Raises `error` for a fault of
    opmatrix."""
    if is_damage(error, state) and type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError):
        return f"{state} is damaged ({error}); it was moved to {move_aside(state)}. Run doit again"
    if not isinstance(error, sqlite3.OperationalError):
        raise error
    return f"cannot write {state}: {error}. {REMEDY}"


def move_aside(path: Path) -> Path:
    """Rename a damaged database and return its new path. Every step then runs once more."""
    broken = path.with_suffix(".broken")
    path.replace(broken)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    return broken


class Fingerprints:
    """The sha256 and the marks of files: `earlier` those of earlier runs, `fresh` those that were computed now."""

    def __init__(self, earlier: dict[str, tuple[Mark, str]]) -> None:
        self._earlier = earlier
        self.fresh: dict[str, tuple[Mark, str]] = {}

    def digest(self, path: str) -> str | None:
        """Return the sha256 of a file, or None if there is no file; of `files.lacking`, what `present` does. Raises
        OSError for one that cannot be read, or is no regular file."""
        lacking = LACKS in path
        now = mark(path.partition(LACKS)[0] if lacking else path)
        if now is None:
            return NONE if lacking else None
        known = self._earlier.get(path)
        if known and known[0] == now:
            return known[1]
        read_at = time.time_ns()
        digest = present(path) if lacking else sha256(path)
        if settled(now, read_at):
            self._earlier[path] = self.fresh[path] = (now, digest)
        return digest
