"""nginx from Debian's package as the server of a shared cache: the configuration of docs/how-to/share-results.md."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

# What the page shows, and the same without passwords.
WITH_PASSWORDS = Path(__file__).with_suffix(".conf").read_text()
SERVER = re.sub(r" +limit_except GET \{[^}]*\}\n", "", WITH_PASSWORDS)
_AROUND = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
{user}
events {{ }}
http {{
    access_log {folder}/access.log;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


@dataclass(frozen=True, kw_only=True)
class Nginx:
    """A server that runs."""

    url: str
    folder: Path  # what it serves
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it and its workers at once, as a power failure does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def program() -> str:
    """Return nginx' path, or skip the test."""
    found = os.environ.get("OPMATRIX_NGINX") or shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        pytest.skip("no nginx: apt-get install nginx-light, or set OPMATRIX_NGINX to the program")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def nginx(folder: Path, *, server: str = SERVER, port: int = 0, scheme: str = "http") -> Iterator[Nginx]:
    """Serve `folder`/served until the block ends; `server` is the block of the configuration."""
    command, port = program(), port or free_port()
    served = folder / "served"
    served.mkdir(parents=True, exist_ok=True)
    text = server.replace("listen 8080", f"listen 127.0.0.1:{port}")
    text = text.replace("/srv/opmatrix-cache-uploads", f"{folder}/uploads").replace("/srv/opmatrix-cache", str(served))
    text = text.replace("/etc/nginx/opmatrix-passwords", f"{folder}/passwords")
    configuration = folder / "nginx.conf"
    user = "user root;" if os.getuid() == 0 else ""  # else a worker is `nobody`, who may not enter pytest's folders
    configuration.write_text(_AROUND.format(folder=folder, server=text, user=user))
    with (folder / "error.log").open("wb") as errors:
        process = subprocess.Popen(
            [command, "-p", str(folder), "-c", str(configuration)], stderr=errors, start_new_session=True
        )
    url = f"{scheme}://127.0.0.1:{port}"
    running = Nginx(url=url, folder=served, process=process, log=folder / "access.log")
    try:
        _wait(port, process, folder / "error.log")
        yield running
        process.terminate()
        process.wait()
    finally:
        running.kill()


def _wait(port: int, process: subprocess.Popen[bytes], errors: Path) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"nginx does not listen: {errors.read_text()}")
