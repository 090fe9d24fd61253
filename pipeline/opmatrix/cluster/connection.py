"""The connection to a scheduler, and the workers that a run starts on this machine."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from distributed import Client, LocalCluster, Security

from opmatrix.errors import UsageError, one_line
from opmatrix.project.paths import Paths

_CONNECT = 60  # seconds that a scheduler may take to answer, also on a busy machine
# What dask's configuration has, and the variables that set it.
_TLS = {"tls_ca_file": "CA_FILE", "tls_client_cert": "CLIENT__CERT", "tls_client_key": "CLIENT__KEY"}


def start_workers(count: int, paths: Paths) -> LocalCluster:
    """Start workers on this machine, each in a folder of its own."""
    paths.workers.mkdir(parents=True, exist_ok=True)
    return LocalCluster(
        n_workers=count,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # any free port: another scheduler may have 8787
        worker_dashboard_address=None,
        local_directory=str(paths.workers),
        memory_limit=0,  # steps have limits of their own
        silence_logs=logging.CRITICAL,
    )


def connect(address: str) -> Client:
    """Connect to a scheduler. Raises UsageError."""
    security = Security()
    missing = [variable for field, variable in _TLS.items() if not _is_file(getattr(security, field))]
    if address.startswith("tls://") and missing:
        names = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{variable}" for variable in missing)
        raise UsageError(f"--on {address}: TLS needs certificates. Set {names} to files that exist, or dask's own "
                         "configuration")  # fmt: skip
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        # dask itself asks again and again, for all of the time, also where nothing listens.
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
        return Client(address, security=security, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"--on {address}: no scheduler answers there: {one_line(error)}. Start one: dask scheduler, "
                         "and on each machine: dask worker") from error  # fmt: skip


def _is_file(path: str | None) -> bool:
    return path is not None and ("-----BEGIN" in path or Path(path).is_file())  # dask takes either


def silence() -> None:
    """Let dask log nothing: the run says in its own lines what is lost."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
