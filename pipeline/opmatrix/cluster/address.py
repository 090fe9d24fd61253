"""Where the workers of a run are: the value of ``doit --on``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opmatrix.errors import UsageError

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
