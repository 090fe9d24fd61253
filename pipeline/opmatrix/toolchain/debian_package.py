"""Unpack one package of Debian without being root: apt checks its signature, its own state is left alone.

Standard library only: `opmatrix.environments.bootstrap` needs this before anything is installed.
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
    """This machine has no apt, or its apt cannot give the package."""


def unpack(package: str, *, into: Path, suite: str | None = None) -> None:
    """Download `package` with apt and unpack it into the folder `into`.

    It comes from the sources that this machine's own apt is configured with, or, given a `suite` that is not among
    them (``"trixie"``), from that suite of the same mirrors.
    """
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise DebianError(f"{tool} is not on PATH")
    with tempfile.TemporaryDirectory(prefix="opmatrix-apt-") as name:
        folder = Path(name)
        apt = ["apt-get", *_private(folder), *(_sources(suite, folder) if suite else [])]
        # A third party's source that fails does not matter, so it is the download that decides.
        log = _run([*apt, "update"], folder, check=False)
        log += _run([*apt, "download", package], folder, hint=log)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(into)], folder)


def mirrors() -> list[str]:
    """Return the addresses from which this machine's apt takes packages, without asking any of them."""
    # Not `apt-get indextargets`: where apt has fetched no lists yet, it tells nothing.
    found = re.findall(r"^'(.+)/dists/[^']+/InRelease'", _run(["apt-get", "update", "--print-uris"], Path("/")), re.M)
    return list(dict.fromkeys(found))


def _private(folder: Path) -> list[str]:
    """Make folders for lists and a cache of apt's own, and return the options that name them."""
    for name in ("state", "cache"):  # the folders below them are made by apt
        (folder / name).mkdir()
    return [
        *("-o", f"Dir::State={folder}/state"),
        *("-o", f"Dir::Cache={folder}/cache"),
        *("-o", "APT::Sandbox::User=root"),  # else root's apt becomes a user that cannot enter `folder`
        *("-o", "Acquire::Retries=1"),
        *("-o", "Acquire::http::Timeout=20"),
    ]


def _sources(suite: str, folder: Path) -> list[str]:
    """Write `suite` of each mirror as a source, and return the options that make them the only ones."""
    # A mirror without that suite, or whose signature is not Debian's, is passed over by apt.
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    source = folder / "suite.list"
    source.write_text("".join(f"deb {signed}{address} {suite} main\n" for address in mirrors()))
    return ["-o", f"Dir::Etc::sourcelist={source}", "-o", "Dir::Etc::sourceparts=/dev/null"]


def _run(command: list[str], folder: Path, *, check: bool = True, hint: str = "") -> str:
    """Run, and return what was printed. A failure is told by its first error line, `hint`'s included."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},  # for the words that are looked for below
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if check and done.returncode:
        lines = [line for line in (hint + done.stdout).splitlines() if line.startswith(("E:", "W: Failed"))]
        raise DebianError(f"{' '.join([command[0], *command[-2:]])}: {lines[0] if lines else 'no error message'}")
    return done.stdout
