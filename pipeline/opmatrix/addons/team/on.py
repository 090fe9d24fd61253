"""The option ``--on`` of `doit`: run steps on workers, of a dask scheduler or started on this machine."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from doit import get_var

from opmatrix.basics.errors import UsageError
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.shared_cache import settings

if TYPE_CHECKING:
    from opmatrix.engine.shared_results import SharedResults, Workers


ALLOWED = "tls://HOST:PORT of a dask scheduler, tcp://localhost:PORT, or local:N for N workers on this machine"
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of a scheduler, or the number of workers that the run starts on this machine."""

    scheduler: str = ""
    local: int = 0

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `text` names. Raises UsageError: also for one that is not encrypted and not here,
        because each program that reaches a scheduler can run code on its workers."""
        if local := re.fullmatch(r"local:(\d{1,3})", text):
            if not int(local[1]):
                raise UsageError("--on local:0 has no worker; allowed: local:N with N from 1 on")
            return cls(local=int(local[1]))
        found = re.fullmatch(r"(tls|tcp)://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})", text)
        if not found:
            raise UsageError(f"--on: found {text!r}, allowed: {ALLOWED}")
        if found[1] == "tcp" and not _LOOPBACK.fullmatch(found[2]):
            raise UsageError(f"--on {text}: without TLS, each program that reaches it can run code on its workers. "
                             f"Use tls://{found[2]}:{found[3]}")  # fmt: skip
        return cls(scheduler=text)


_MANY = 32  # steps that are handed out at a time, unless `-n` says how many


class Elsewhere:
    """The workers of one run, and the shared cache that they use. Raises UsageError for what cannot work."""

    def __init__(self, text: str, *, paths: Paths, environ: Mapping[str, str], at_once: int) -> None:
        self._address, self._paths = Address.parse(text), paths
        if importlib.util.find_spec("distributed") is None:
            raise UsageError("--on needs the package distributed: pip install 'opmatrix[cluster]'")
        self.at_once = at_once or 2 * self._address.local or _MANY
        self._store = paths.workers / "store"
        self.environ = environ
        found = settings.read(paths, environ)
        if found is None and self._address.local:
            own = {settings.URL: self._store.as_uri(), settings.MODE: "write"}
            self.environ, found = {**environ, **own}, settings.read(paths, {**environ, **own})
        if found is None:
            raise UsageError(f"--on {text}: workers share nothing with this machine but the shared cache, and none is "
                             f"set. Set url in {settings.TABLE}, or {settings.URL}")  # fmt: skip
        if found.mode != "write":
            raise UsageError(f"--on {text}: the mode of the shared cache is {found.mode!r}, and workers get from it "
                             f"what they need. Set {settings.MODE}=write")  # fmt: skip

    @contextmanager
    def folders(self) -> Iterator[None]:
        """Have nothing left of the workers that an earlier run started, nor of those of this one."""
        if not self._address.local:
            yield
            return
        shutil.rmtree(self._store.parent, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(self._store.parent, ignore_errors=True)

    def connect(self, shared: SharedResults, *, entry: str, plan: str, note: Callable[[str], None]) -> Workers:
        """Connect to the workers. Raises UsageError."""
        from opmatrix.addons.team.remote import Remote  # distributed takes 0.3 s to import
        from opmatrix.commands.dodo import VARIABLES

        choice = Choice(**{name: get_var(name, "default") for name in VARIABLES})
        return Remote(**vars(self._address), paths=self._paths, choice=choice, shared=shared, entry=entry, plan=plan,
                      at_once=self.at_once, note=note)  # fmt: skip
