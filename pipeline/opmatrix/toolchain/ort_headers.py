"""Find ONNX Runtime's C and C++ headers, which no wheel holds.

1. OPMATRIX_ORT_INCLUDE, where it is set
2. pkg-config's libonnxruntime, where it is new enough
3. the pinned version, kept outside the checkout and shared by all clones: from the official release archive, or, where
   that cannot be reached, from Debian. One set of checksums, one per header, serves both and is checked on every use.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.errors import CompileError, SdkError, missing
from opmatrix.project.paths import Paths
from opmatrix.toolchain import debian_package

VERSION = "1.21.0"
RELEASE = f"https://github.com/microsoft/onnxruntime/releases/download/v{VERSION}/onnxruntime-linux-x64-{VERSION}.tgz"
DEBIAN_PACKAGE, DEBIAN_SUITE = "libonnxruntime-dev", "trixie"
# What `#include <onnxruntime_lite_custom_op.h>`, the widest of them, takes in. Debian leaves these files as they are
# in the source tree at v1.21.0 (compared with the source package 1.21.0+dfsg-1).
CHECKSUMS = {
    "onnxruntime_c_api.h": "7783e9664bdb0b1b36145b5c8587dd1bc9a399aa000edf2e3dd03003cafc6882",
    "onnxruntime_cxx_api.h": "b3b27d6a6fced0725e3f188379cca008b1d7a456997684756374d4b388f2cf05",
    "onnxruntime_cxx_inline.h": "7f448e994c732eacd9e49900365fefa8f1ac998a6d6eb78e5f4aab1b8d9d8900",
    "onnxruntime_float16.h": "6c4db3d1954b266c4febe413351af86cac922e3448538e7e452e51d646e56a4a",
    "onnxruntime_lite_custom_op.h": "967e36eb375e975a3b88e599129394317f790a987f266d522fbe3d02c5211fd3",
}
C_API = "onnxruntime_c_api.h"
# The bindings are compiled against the struct OrtCustomOp of API 18; what an older ONNX Runtime lacks of it they leave
# unused at run time.
OLDEST_API = 18
TIMEOUT = 10  # seconds without an answer, after which the release archive counts as out of reach


@dataclass(frozen=True, kw_only=True)
class Headers:
    """A folder for `-I`, and what is in it."""

    path: Path
    version: str  # of ONNX Runtime: "1.21.0", or "1.21" where the headers alone tell
    api_version: int  # ORT_API_VERSION
    origin: str  # how they were found


def recorded(layout: Paths) -> Mapping[str, Any]:
    """Return what the sdk stage found. Raises CompileError where it did not run."""
    try:
        found: Mapping[str, Any] = json.loads(layout.ort_headers.read_text())
    except FileNotFoundError as error:
        raise CompileError(missing(layout.ort_headers, run="python -m opmatrix headers")) from error
    return found


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for what all clones share: `opmatrix` in XDG_CACHE_HOME, by default in ~/.cache."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    folder = Path(base) if Path(base).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return folder / "opmatrix"


def find_headers(environ: Mapping[str, str], *, cache: Path, say: Callable[[str], None]) -> Headers:
    """Return the headers to compile against, fetched into `cache` if need be; raise SdkError.

    `say` is told what takes time, and why headers that were found are passed over.
    """
    if setting := environ.get("OPMATRIX_ORT_INCLUDE"):
        return _explicit(Path(setting).absolute())
    return _from_pkg_config(environ, say) or _pinned(cache, say)


def api_version(folder: Path) -> int | None:
    """Return the ORT_API_VERSION that the headers in `folder` define, if there are any."""
    try:
        text = (folder / C_API).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^#define ORT_API_VERSION (\d+)", text, flags=re.MULTILINE)
    return int(found[1]) if found else None


def _explicit(folder: Path) -> Headers:
    version = api_version(folder)
    if version is None:
        raise SdkError(
            f"OPMATRIX_ORT_INCLUDE is {str(folder)!r}, which holds no usable {C_API}. Set it to the folder that does: "
            "'include' in ONNX Runtime's release archive, '/usr/include/onnxruntime' with Debian's package. "
            "Unset it to have the headers fetched."
        )
    if version < OLDEST_API:
        raise SdkError(
            f"OPMATRIX_ORT_INCLUDE is {str(folder)!r}, whose headers have API version {version}; {OLDEST_API} or newer "
            "is needed. Take the headers of a newer ONNX Runtime (they serve older ones too), or unset it."
        )
    return Headers(path=folder, version=f"1.{version}", api_version=version, origin=f"OPMATRIX_ORT_INCLUDE={folder}")


def _from_pkg_config(environ: Mapping[str, str], say: Callable[[str], None]) -> Headers | None:
    program = shutil.which("pkg-config", path=environ.get("PATH"))
    if not program:
        return None

    def ask(*arguments: str) -> str | None:
        command = [program, *arguments, "libonnxruntime"]
        done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout.strip() if done.returncode == 0 else None

    version = ask("--modversion")
    if version is None:
        return None
    flags = shlex.split(ask("--cflags-only-I", "--keep-system-cflags") or "")
    for folder in (Path(flag.removeprefix("-I")) for flag in flags):
        found = api_version(folder)
        if found is not None and found >= OLDEST_API:
            return Headers(path=folder, version=version, api_version=found, origin="pkg-config libonnxruntime")
    say(f"pkg-config's libonnxruntime {version} is passed over: no headers with API version {OLDEST_API} or newer")
    return None


def _pinned(cache: Path, say: Callable[[str], None]) -> Headers:
    folder = cache / f"onnxruntime-{VERSION}"
    if not folder.exists():
        _fetch(folder, say)
    _check(folder, f"Remove '{folder}' and run the command again, which fetches them anew.")
    version = api_version(folder)
    assert version is not None, "the checksums hold"
    return Headers(path=folder, version=VERSION, api_version=version, origin=f"pinned version, kept in '{folder}'")


def _check(folder: Path, remedy: str) -> None:
    """Raise SdkError unless every header is there and is the pinned one."""
    for name, expected in CHECKSUMS.items():
        try:
            actual = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except FileNotFoundError:
            raise SdkError(f"'{folder / name}' of ONNX Runtime {VERSION}'s headers is missing. {remedy}") from None
        if actual != expected:
            raise SdkError(
                f"'{folder / name}' is not the header of ONNX Runtime {VERSION} that is pinned: its sha256 is "
                f"{actual}, expected {expected}. {remedy}"
            )


def _fetch(folder: Path, say: Callable[[str], None]) -> None:
    """Make `folder`, whole or not at all. Of two that make it at once, the first wins and both are content."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            fresh = Path(name) / "include"
            fresh.mkdir()
            origin = _download(fresh, say)
            _check(fresh, f"It came from {origin}: do not use it, set OPMATRIX_ORT_INCLUDE to headers that you trust.")
            fresh.rename(folder)
    except OSError as err:
        if not folder.exists():  # which it does where another run was faster
            raise SdkError(
                f"the headers of ONNX Runtime cannot be kept in '{folder.parent}' ({err}). Set XDG_CACHE_HOME to a "
                "folder that can be written."
            ) from err


def _download(into: Path, say: Callable[[str], None]) -> str:
    """Put the headers into the folder `into` and return where they came from."""
    say(f"fetching the headers of ONNX Runtime {VERSION} from {RELEASE}")
    reason = _from_release(into)
    if reason is None:
        return RELEASE
    origin = f"Debian's package {DEBIAN_PACKAGE} ({DEBIAN_SUITE})"
    say(f"no answer there ({reason}); fetching them from {origin}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            debian_package.unpack(DEBIAN_PACKAGE, into=Path(folder), suite=DEBIAN_SUITE)
            for header in Path(folder, "usr/include/onnxruntime").glob("*.h"):
                if header.name in CHECKSUMS:
                    shutil.copyfile(header, into / header.name)
    except debian_package.DebianError as err:
        raise SdkError(
            f"the headers of ONNX Runtime {VERSION} cannot be had, neither from {RELEASE} ({reason}) nor from {origin} "
            f"({err}). Check the network, or set OPMATRIX_ORT_INCLUDE to the folder that holds {C_API}."
        ) from err
    return origin


def _from_release(into: Path) -> str | None:
    """Put the headers of the release archive into `into`; return why they cannot be had, or nothing."""
    # Imported here, for they cost 30 ms, and every run of doit imports this module.
    import http.client
    import tarfile
    import urllib.request

    try:
        with (
            urllib.request.urlopen(RELEASE, timeout=TIMEOUT) as answer,
            tarfile.open(fileobj=answer, mode="r|gz") as archive,
        ):
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in CHECKSUMS and member.isfile() else None
                if content:
                    (into / name).write_bytes(content.read())
    except (OSError, http.client.HTTPException, tarfile.TarError) as err:
        return str(getattr(err, "reason", err)) or type(err).__name__
    return None
