"""Download and unpack a Debian package without root. apt checks its signature; the system's apt state stays as it is.

Imports only the standard library: `bootstrap` takes pip from one before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


class DebianError(Exception):
    """This machine has no apt, or apt cannot download the package."""


def unpack(package: str, *, into: Path) -> None:
    """Get `package` from apt's sources into `into`. Raises DebianError."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise DebianError(f"{tool} is not on PATH")
    with tempfile.TemporaryDirectory(prefix="opmatrix-apt-") as name:
        folder = Path(name)
        for private in ("state", "cache"):  # apt creates the folders below them
            (folder / private).mkdir()
        apt = [
            "apt-get",
            *("-o", f"Dir::State={folder}/state"),
            *("-o", f"Dir::Cache={folder}/cache"),
            *("-o", "APT::Sandbox::User=root"),  # else root's apt switches to a user who cannot enter `folder`
            *("-o", "Acquire::Retries=1"),
            *("-o", "Acquire::http::Timeout=20"),
        ]
        # A failed update is no error: the source that failed may be a third party's.
        log = _run([*apt, "update"], folder, check=False)
        log += _run([*apt, "download", package], folder, hint=log)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(into)], folder)


def _run(command: list[str], folder: Path, *, check: bool = True, hint: str = "") -> str:
    """Run, and return stdout and stderr. DebianError has the first error line of `hint` and the output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},  # the error prefixes below are English
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if check and done.returncode:
        lines = [line for line in (hint + done.stdout).splitlines() if line.startswith(("E:", "W: Failed"))]
        raise DebianError(f"{' '.join([command[0], *command[-2:]])}: {lines[0] if lines else 'no error message'}")
    return done.stdout
