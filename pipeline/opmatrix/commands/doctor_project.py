"""What `doit doctor` checks of a project: its settings, lock, state, environments and shared cache, and their sizes."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from opmatrix.basics.errors import OpmatrixError, many
from opmatrix.basics.features import provided
from opmatrix.basics.finding import Finding, note, ok, wrong
from opmatrix.engine.lock import held_by, kill_command, left_over, shown_holders, wait_or_stop
from opmatrix.environments import bootstrap
from opmatrix.environments.pip_install import VenvPaths
from opmatrix.project import measured, settings
from opmatrix.project.cells import environment_names
from opmatrix.project.paths import PACKAGE, Paths
from opmatrix.project.settings import check_format
from opmatrix.shared_cache import settings as cache_settings
from opmatrix.shared_cache.settings import CacheSettings

_COUNT_SECONDS = 2  # for counting bytes
_ANSWER_SECONDS = 3  # for an answer of the shared cache


def project(paths: Paths) -> Iterator[Finding]:
    """Are the settings of the project readable, and is this its opmatrix?"""
    try:
        check_format(paths.root)
        measured.use_rows(paths)
        settings.default_opsets(paths)
        settings.step_limits(paths)
    except (OpmatrixError, OSError) as error:
        yield wrong("project", str(error))
    else:
        operators = [p.parent.name for p in sorted(paths.ops.glob("*/spec.py"))]
        yield ok("project", f"{paths.root}, {many(len(operators), 'operator')}")
        with suppress(OpmatrixError):  # of a package that is missing, which another check finds
            if said := measured.unmeasured(measured.read(paths), settings.installed()):
                yield note("project", said)
    own = paths.root / "pipeline/opmatrix"
    if own.is_dir() and own.resolve() != PACKAGE:
        yield note("project", f"this is a checkout of opmatrix, but {PACKAGE} runs. Use ./run, or `pip install -e .`")


def main_environment(root: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Is the environment of a checkout, which ./run makes, complete?"""
    venv = VenvPaths(root=root)
    if holders := held_by(venv.lock):
        yield note(".venv", f"is being made by {wait_or_stop(holders, venv.lock)}")
    elif not venv.environment.exists():
        yield note(".venv", "is not made yet; the next ./run makes it")
    elif not (found := bootstrap.read_stamp(venv)):
        yield note(".venv", "is incomplete; the next ./run removes it and makes it again")
    elif found != bootstrap.stamp(root, environ):
        yield note(".venv", "has other pins, or was made in another folder; the next ./run makes it again")
    else:
        yield ok(".venv", "complete, with the pins of requirements/")


def lock(paths: Paths) -> Iterator[Finding]:
    """Is another run at work, or are processes left of one?"""
    holders = held_by(paths.lock)
    if not holders:
        there = "; the file itself locks nothing" if paths.lock.exists() else ""
        yield ok("lock", f"{_below(paths.lock, paths.root)} is free{there}")
        return
    recorded = ""
    with suppress(OSError):
        recorded = paths.lock.read_text(encoding="utf-8").partition("\n")[0].strip()
    who = shown_holders(holders)
    if recorded in map(str, holders):
        yield note("lock", f"another run is at work in {paths.build}: {who}. Wait for it, or stop it with: "
                           f"kill {recorded}")  # fmt: skip
    else:
        yield wrong("lock", left_over(recorded, paths.lock, holders), f"Stop with: {kill_command(holders, paths.lock)}")


def state(paths: Paths) -> Iterator[Finding]:
    """Can the database of what is up to date be read?"""
    if not paths.state.exists():
        return
    try:
        with sqlite3.connect(f"file:{paths.state}?mode=ro", uri=True) as database:
            (said,) = database.execute("pragma quick_check(1)").fetchone()
            steps = database.execute("select count(*) from step where key is not null").fetchone()[0]
    except (sqlite3.DatabaseError, OSError) as error:
        said, steps = str(error), 0
    if said == "ok":
        yield ok("state", f"{many(steps, 'step')} recorded in {_below(paths.state, paths.root)}")
    elif "locked" not in said:
        yield note("state", f"{_below(paths.state, paths.root)} is damaged ({said}); the next run moves it aside, and "
                            "every step runs once more")  # fmt: skip


def environments(paths: Paths) -> Iterator[Finding]:
    """Which environments of the matrix are complete?"""
    top = paths.environment("")
    complete, names = [], environment_names()
    for folder in sorted(p for p in top.iterdir() if p.is_dir()) if top.is_dir() else ():
        name, shown = folder.name, _below(folder, paths.root)
        if name not in names:
            yield note("matrix", f"{shown} is of no version in the matrix. Remove it: rm -r {shlex.quote(shown)}")
        elif holders := held_by(lock := VenvPaths(root=paths.root, name=str(folder.relative_to(paths.root))).lock):
            yield note("matrix", f"{shown} is being made by {wait_or_stop(holders, lock)}")
        elif why := _incomplete(paths, name):
            yield note("matrix", f"{shown} {why}; the next run that needs it makes it again, or now: "
                                 f"python -m opmatrix environment {name}")  # fmt: skip
        else:
            complete.append(name)
    text = f"complete: {', '.join(sorted(complete, key=names.index))}" if complete else "no environments"
    yield ok("matrix", f"{text}; others are made when a run first needs them")


def _incomplete(paths: Paths, name: str) -> str:
    """Return what is wrong with an environment, or ""."""
    stamp = paths.stamp(name)
    if not stamp.is_dir():
        return "is incomplete, as of an installation that was interrupted"
    if not paths.python(name).exists():
        link = paths.python(name)
        return f"has no Python any more ({link.readlink()} is gone)" if link.is_symlink() else "has no Python"
    for pins in paths.pins(name):
        made = stamp / pins.name
        if not pins.is_file():
            return f"cannot be made again, because its pins {pins} are missing"
        if not made.is_file() or made.read_bytes() != pins.read_bytes():
            return f"has other versions than {pins.name} pins now"
    return ""


def shared_cache(paths: Paths, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Does the shared cache answer, whose entries are taken, and can this machine's key sign? Nothing is stored."""
    shared = cache_settings.read(paths, environ)
    if shared is None:
        off, url = cache_settings.OFF, cache_settings.URL
        if names := [name for name in (url, cache_settings.MODE) if environ.get(name) == off]:
            yield note("cache", f"the shared cache is off: {names[0]}={off}")
        elif table := settings.settings(paths, "cache"):
            unset = f"no url in pyproject.toml, and {url} is not set"
            why = f"its mode is {off!r}" if table.get("mode") == off else unset
            yield note("cache", f"the shared cache is off: {why}")
        return
    yield _answer(shared)
    if not shared.signers and not shared.key:
        yield note("cache", "no signers are named, so entries are accepted from everyone who can write to the cache")
        return
    if not shutil.which("ssh-keygen", path=environ.get("PATH")):
        yield wrong("cache", "no ssh-keygen on PATH, so no entry can be signed or verified",
                    "Install OpenSSH's client (Debian: apt install openssh-client)")  # fmt: skip
        return
    signing = provided("signing")
    if shared.signers:
        names = signing.signer_names(shared.signers)
        yield ok("cache", f"only entries of {many(len(names), 'signer')} are taken: {', '.join(names)}")
    if shared.key:
        name = signing.check_key(shared.key, shared.signers)
        yield ok("cache", f"{cache_settings.KEY} signs{f' as {name}' if name else ''}: {shared.key}")


def _answer(shared: CacheSettings) -> Finding:
    from opmatrix.shared_cache.store import StoreError, without_password  # imported here: few have a cache
    from opmatrix.shared_cache.stores import open_store

    try:
        store = open_store(shared.url, timeout=_ANSWER_SECONDS)
    except OpmatrixError as error:
        return wrong("cache", str(error))
    try:
        store.get("cas", hashlib.sha256(b"opmatrix doctor\n").hexdigest())
    except StoreError as error:
        return note("cache", f"the shared cache does not answer: {error}. doit works without it, and computes all here")
    finally:
        store.close()
    local = "; verdicts are computed here" if shared.prove == "local" else ""
    return ok("cache", f"{without_password(shared.url)} answers; mode {shared.mode}{local}")


def sizes(paths: Paths | None, cache: Path) -> Iterator[Finding]:
    """How much space does each folder take?"""
    folders = [*([paths.build, paths.environment("")] if paths else []), cache]
    until = time.monotonic() + _COUNT_SECONDS
    found = [f"{_below(folder, paths.root) if paths else folder} {size_of(folder, until=until)}"
             for folder in folders if folder.is_dir()]  # fmt: skip
    if found:
        yield ok("sizes", "; ".join(found))


def size_of(folder: Path, *, until: float) -> str:
    """Return ``1.3 GB``, or ``more than 1.3 GB`` where time.monotonic() reaches `until` before all is counted."""
    blocks, waiting = 0, [str(folder)]
    while waiting and time.monotonic() <= until:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # it went meanwhile, or may not be read
            for entry in entries:
                blocks += entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    more, size = "more than " if waiting else "", blocks * 512
    return f"{more}{size / 1e9:.1f} GB" if size > 1e9 else f"{more}{size / 1e6:.0f} MB"


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
