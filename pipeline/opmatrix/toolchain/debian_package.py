"""Download and unpack a Debian package without root. apt checks its signature; the system's apt state stays as it is.

Imports only the standard library: `opmatrix.environments.bootstrap` uses it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class DebianError(Exception):
    """This machine has no apt, or apt cannot download the package."""


def unpack(package: str, *, into: Path, suite: str | None = None) -> None:
    """Get `package` from apt's sources, or a `suite` (``trixie``) of their mirrors, into `into`. Raises DebianError."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise DebianError(f"{tool} is not on PATH")
    with tempfile.TemporaryDirectory(prefix="opmatrix-apt-") as name:
        folder = Path(name)
        apt = ["apt-get", *_private(folder), *(_sources(suite, folder) if suite else [])]
        # A failed update is no error: the source that failed may be a third party's.
        log = _run([*apt, "update"], folder, check=False)
        log += _run([*apt, "download", package], folder, hint=log)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(into)], folder)


def mirrors() -> list[str]:
    """Return the addresses of the mirrors of this machine's apt, without network."""
    # Not `apt-get indextargets`, which prints nothing before apt has fetched its lists.
    found = re.findall(r"^'(.+)/dists/[^']+/InRelease'", _run(["apt-get", "update", "--print-uris"], Path("/")), re.M)
    return list(dict.fromkeys(found))


def _private(folder: Path) -> list[str]:
    """Create folders for apt's lists and cache, and return the options that name them."""
    for name in ("state", "cache"):  # apt creates the folders below them
        (folder / name).mkdir()
    return [
        *("-o", f"Dir::State={folder}/state"),
        *("-o", f"Dir::Cache={folder}/cache"),
        *("-o", "APT::Sandbox::User=root"),  # else root's apt switches to a user who cannot enter `folder`
        *("-o", "Acquire::Retries=1"),
        *("-o", "Acquire::http::Timeout=20"),
    ]


def _sources(suite: str, folder: Path) -> list[str]:
    """Write a source list with `suite` of each mirror, and return the options that make apt use only that."""
    # apt ignores a mirror without that suite, or with another signature than Debian's.
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    source = folder / "suite.list"
    source.write_text("".join(f"deb {signed}{address} {suite} main\n" for address in mirrors()), encoding="utf-8")
    return ["-o", f"Dir::Etc::sourcelist={source}", "-o", "Dir::Etc::sourceparts=/dev/null"]


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
