"""The option ``--on`` of `doit`: run steps on workers, of a dask scheduler or started on this machine."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from doit import get_var

from opmatrix.cluster.address import Address
from opmatrix.errors import UsageError
from opmatrix.matrix.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.shared_cache import settings

if TYPE_CHECKING:
    from opmatrix.engine.elsewhere import Workers
    from opmatrix.engine.shared_results import SharedResults

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
        from opmatrix.cluster.remote import Remote  # distributed takes 0.3 s to import
        from opmatrix.commands.dodo import VARIABLES

        choice = Choice(**{name: get_var(name, "default") for name in VARIABLES})
        return Remote(self._address, paths=self._paths, choice=choice, shared=shared, entry=entry, plan=plan,
                      at_once=self.at_once, note=note)  # fmt: skip
