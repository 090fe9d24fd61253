"""The shared cache of a project: does it answer, whose entries are taken, and can this machine's key sign?"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping

from opmatrix.basics.errors import OpmatrixError, UsageError, many
from opmatrix.basics.features import provided
from opmatrix.basics.finding import Finding, note, ok, wrong
from opmatrix.cache import settings
from opmatrix.cache.settings import CacheSettings
from opmatrix.doctor.machine import from_message
from opmatrix.project.paths import Paths
from opmatrix.project.settings import settings as project_settings

_SECONDS = 3  # for an answer


def shared_cache(paths: Paths, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield nothing for a project without a shared cache. Nothing is stored."""
    try:
        found = settings.read(paths, environ)
    except UsageError as error:
        yield wrong("cache", str(error))
        return
    if found is None:
        if names := [name for name in (settings.URL, settings.MODE) if environ.get(name) == settings.OFF]:
            yield note("cache", f"the shared cache is off: {names[0]}={settings.OFF}")
        elif table := project_settings(paths, "cache"):
            off = table.get("mode") == settings.OFF
            why = f"its mode is {settings.OFF!r}" if off else f"no url in pyproject.toml, and {settings.URL} is not set"
            yield note("cache", f"the shared cache is off: {why}")
        return
    yield _answer(found)
    yield from _signatures(found, environ)


def _answer(found: CacheSettings) -> Finding:
    from opmatrix.cache.store import StoreError, without_password  # imported here: few have a cache
    from opmatrix.cache.stores import open_store

    try:
        store = open_store(found.url, timeout=_SECONDS)
    except OpmatrixError as error:
        return wrong("cache", str(error))
    try:
        store.get("cas", hashlib.sha256(b"opmatrix doctor\n").hexdigest())
    except StoreError as error:
        return note("cache", f"the shared cache does not answer: {error}. doit works without it, and computes all here")
    finally:
        store.close()
    local = "; verdicts are computed here" if found.prove == "local" else ""
    return ok("cache", f"{without_password(found.url)} answers; mode {found.mode}{local}")


def _signatures(found: CacheSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    if not found.signers and not found.key:
        yield note("cache", "no signers are named, so entries are accepted from everyone who can write to the cache")
        return
    if not shutil.which("ssh-keygen", path=environ.get("PATH")):
        yield wrong("cache", "no ssh-keygen on PATH, so no entry can be signed or verified",
                    "Install OpenSSH's client (Debian: apt install openssh-client)")  # fmt: skip
        return
    signing = provided("signing")
    if found.signers:
        names = signing.signer_names(found.signers)
        yield ok("cache", f"only entries of {many(len(names), 'signer')} are taken: {', '.join(names)}")
    if found.key:
        try:
            name = signing.check_key(found.key, found.signers)
        except OpmatrixError as error:
            yield from_message("cache", str(error))
        else:
            yield ok("cache", f"{settings.KEY} signs{f' as {name}' if name else ''}: {found.key}")
