"""Find ONNX Runtime's C and C++ headers, which no wheel has, for the headers stage.

1. OPMATRIX_ORT_INCLUDE, if it is set
2. pkg-config's libonnxruntime, if it is new enough
3. the pinned version in a folder that all clones of this machine share: from the project's shared cache, the official
   release archive or, if that is out of reach, Debian. Each header has the same checksum, checked on every use.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opmatrix.basics.errors import Cause, CompileError, SdkError, missing
from opmatrix.basics.progress import Progress
from opmatrix.project.paths import Paths
from opmatrix.toolchain import debian_package

if TYPE_CHECKING:
    import http.client

VERSION = "1.21.0"
RELEASE = f"https://github.com/microsoft/onnxruntime/releases/download/v{VERSION}/onnxruntime-linux-x64-{VERSION}.tgz"
DEBIAN_PACKAGE, DEBIAN_SUITE = "libonnxruntime-dev", "trixie"
# All files that `#include <onnxruntime_lite_custom_op.h>` reads. Debian's are the same as in the source tree at v1.21.0
# (compared with the source package 1.21.0+dfsg-1).
CHECKSUMS = {
    "onnxruntime_c_api.h": "7783e9664bdb0b1b36145b5c8587dd1bc9a399aa000edf2e3dd03003cafc6882",
    "onnxruntime_cxx_api.h": "b3b27d6a6fced0725e3f188379cca008b1d7a456997684756374d4b388f2cf05",
    "onnxruntime_cxx_inline.h": "7f448e994c732eacd9e49900365fefa8f1ac998a6d6eb78e5f4aab1b8d9d8900",
    "onnxruntime_float16.h": "6c4db3d1954b266c4febe413351af86cac922e3448538e7e452e51d646e56a4a",
    "onnxruntime_lite_custom_op.h": "967e36eb375e975a3b88e599129394317f790a987f266d522fbe3d02c5211fd3",
}
C_API = "onnxruntime_c_api.h"
# The bindings fill in the struct OrtCustomOp of API 18; at run time they use only what the running version has.
OLDEST_API = 18
TIMEOUT = 10  # seconds without an answer from the release archive


@dataclass(frozen=True, kw_only=True)
class OrtHeaders:
    """An include folder of ONNX Runtime."""

    path: Path
    version: str  # "1.21.0", or "1.21" if only the headers are known
    api_version: int  # ORT_API_VERSION
    origin: str  # how the folder was found


class SharedHeaders(Protocol):
    """Where other machines have stored the pinned headers. It raises nothing."""

    def take(self, into: Path) -> bool:
        """Copy all headers into a folder, and return whether they are there."""
        ...

    def give(self, headers: Path) -> None:
        """Store the headers of a folder."""
        ...


def recorded(paths: Paths) -> Mapping[str, Any]:
    """Return what the headers stage wrote, with the path of the headers. Raises CompileError if it did not run."""
    found = dict[str, Any]()
    for path in (paths.ort_headers, paths.ort_headers_place):
        try:
            found |= json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise CompileError(missing(path, run="python -m opmatrix headers")) from error
    return found


def find_headers(
    environ: Mapping[str, str], *, cache: Path, say: Callable[[str], None], shared: SharedHeaders | None = None
) -> OrtHeaders:
    """Return the headers to compile with, fetched into `cache` if necessary. Raises SdkError.

    `say` receives a line for each download, and for headers found that are too old. `shared` is asked
    before a download, and gets what was downloaded.
    """
    if found := present_headers(environ, cache=cache, say=say):
        return found
    _fetch(_folder(cache), say, shared)
    return _pinned(_folder(cache))


def present_headers(environ: Mapping[str, str], *, cache: Path, say: Callable[[str], None]) -> OrtHeaders | None:
    """Return the headers to compile with, or None if they must be fetched first. Raises SdkError for unusable ones."""
    if setting := environ.get("OPMATRIX_ORT_INCLUDE"):
        return _explicit(Path(setting).absolute())
    if found := _from_pkg_config(environ, say):
        return found
    return _pinned(_folder(cache)) if _folder(cache).exists() else None


def _folder(cache: Path) -> Path:
    return cache / f"onnxruntime-{VERSION}"


def api_version(folder: Path) -> int | None:
    """Return the ORT_API_VERSION of the headers in `folder`, or None if it has none."""
    try:
        text = (folder / C_API).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^#define ORT_API_VERSION (\d+)", text, flags=re.MULTILINE)
    return int(found[1]) if found else None


def _explicit(folder: Path) -> OrtHeaders:
    version = api_version(folder)
    if version is None:
        raise SdkError(
            f"OPMATRIX_ORT_INCLUDE is {str(folder)!r}, which contains no usable {C_API}. Set it to the folder that "
            "does: 'include' in ONNX Runtime's release archive, '/usr/include/onnxruntime' with Debian's package. "
            "Unset it to have the headers fetched."
        )
    if version < OLDEST_API:
        raise SdkError(
            f"OPMATRIX_ORT_INCLUDE is {str(folder)!r}, whose headers have API version {version}; {OLDEST_API} or newer "
            "is needed. Take the headers of a newer ONNX Runtime (they serve older ones too), or unset it."
        )
    return OrtHeaders(path=folder, version=f"1.{version}", api_version=version, origin=f"OPMATRIX_ORT_INCLUDE={folder}")


def _from_pkg_config(environ: Mapping[str, str], say: Callable[[str], None]) -> OrtHeaders | None:
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
            return OrtHeaders(path=folder, version=version, api_version=found, origin="pkg-config libonnxruntime")
    say(f"pkg-config's libonnxruntime {version} is passed over: no headers with API version {OLDEST_API} or newer")
    return None


def _pinned(folder: Path) -> OrtHeaders:
    _check(folder, f"Remove '{folder}' and run the command again, which downloads them again.")
    version = api_version(folder)
    assert version is not None, "the checksums hold"
    return OrtHeaders(path=folder, version=VERSION, api_version=version, origin=f"pinned version, kept in '{folder}'")


def _check(folder: Path, remedy: str) -> None:
    """Raise SdkError unless every header exists and has the pinned checksum."""
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


def _fetch(folder: Path, say: Callable[[str], None], shared: SharedHeaders | None) -> None:
    """Create `folder` at once, by renaming. If two processes do so, the first one's is used."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
            fresh = Path(name) / "include"
            fresh.mkdir()
            if not (shared and shared.take(fresh)):
                origin = _download(fresh, say)
                remedy = "do not use it, set OPMATRIX_ORT_INCLUDE to headers that you trust."
                _check(fresh, f"It came from {origin}: {remedy}")
                if shared:
                    shared.give(fresh)
            fresh.rename(folder)
    except OSError as err:
        if not folder.exists():  # it exists if another run was faster
            raise SdkError(
                f"the headers of ONNX Runtime cannot be kept in '{folder.parent}' ({err}). Set XDG_CACHE_HOME to a "
                "folder that can be written."
            ) from err


def _download(into: Path, say: Callable[[str], None]) -> str:
    """Copy the headers into `into` and return their origin."""
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
            f"({err}). Check the network, or set OPMATRIX_ORT_INCLUDE to the folder that contains {C_API}.",
            cause=Cause(
                sentence=f"no network: neither GitHub nor Debian gives the headers of ONNX Runtime {VERSION}. Check "
                f"the connection, or set OPMATRIX_ORT_INCLUDE to the folder that contains {C_API}"
            ),
        ) from err
    return origin


class _Counted(io.RawIOBase):
    """A download that shows how many of its megabytes are read."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer, self._progress = answer, Progress()
        self._size, self._read = float(answer.headers.get("Content-Length", 0)) / 1e6, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        count = self._answer.readinto(into)
        self._read += count / 1e6
        self._progress.show(f"{self._read:.0f} of {self._size:.0f} MB", self._read, self._size)
        return count


def _from_release(into: Path) -> str | None:
    """Copy the headers of the release archive into `into`; return why that failed, or None."""
    # Imported here because they take 30 ms, and every run of doit imports this module.
    import http.client
    import tarfile
    import urllib.request

    try:
        with (
            urllib.request.urlopen(RELEASE, timeout=TIMEOUT) as answer,
            tarfile.open(fileobj=_Counted(answer), mode="r|gz") as archive,
        ):
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in CHECKSUMS and member.isfile() else None
                if content:
                    (into / name).write_bytes(content.read())
    except (OSError, http.client.HTTPException, tarfile.TarError) as err:
        return str(getattr(err, "reason", err)) or type(err).__name__
    return None
