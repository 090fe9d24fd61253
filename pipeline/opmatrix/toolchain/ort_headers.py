"""ONNX Runtime's C and C++ headers, which no wheel has: those in the folder `onnxruntime`, unless OPMATRIX_ORT_INCLUDE
names another one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.errors import ToolchainError

SETTING = "OPMATRIX_ORT_INCLUDE"
INCLUDED = Path(__file__).with_name("onnxruntime")
VERSION = "1.21.0"  # of the folder `onnxruntime`
C_API = "onnxruntime_c_api.h"
# The bindings fill in the struct OrtCustomOp of API 18; at run time they use only what the running version has.
OLDEST_API = 18


@dataclass(frozen=True, kw_only=True)
class OrtHeaders:
    """An include folder of ONNX Runtime. `version`: "1.21.0", or "1.24" if only the headers are known."""

    path: Path
    version: str

    @property
    def identity(self) -> str:
        """The version and a digest of the files, the same in every folder: 0.5 MB are read."""
        digests = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files(self.path)]
        return f"{self.version} {hashlib.sha256(repr(digests).encode()).hexdigest()[:16]}"


def folder(environ: Mapping[str, str]) -> Path:
    """Return the folder, which may lack the headers. A step works in a folder of links, which are resolved."""
    setting = environ.get(SETTING)
    return Path(setting).resolve() if setting else INCLUDED


def files(path: Path) -> list[Path]:
    """Return the headers in a folder, sorted."""
    return sorted(path.glob("onnxruntime_*.h"))


def find_headers(environ: Mapping[str, str]) -> OrtHeaders:
    """Return the headers to compile with. Raises ToolchainError."""
    if (path := folder(environ)) == INCLUDED:
        return OrtHeaders(path=path, version=VERSION)
    version = api_version(path)
    if version is None:
        raise ToolchainError(
            f"{SETTING} is {str(path)!r}, which contains no usable {C_API}. Set it to the folder that does: 'include' "
            f"in ONNX Runtime's release archive. Unset it to use the headers of ONNX Runtime {VERSION} in opmatrix."
        )
    if version < OLDEST_API:
        raise ToolchainError(
            f"{SETTING} is {str(path)!r}, whose headers have API version {version}; {OLDEST_API} or newer is needed. "
            "Take the headers of a newer ONNX Runtime (they serve older ones too), or unset it."
        )
    return OrtHeaders(path=path, version=f"1.{version}")


def api_version(path: Path) -> int | None:
    """Return the ORT_API_VERSION of the headers in a folder, or None if it has none."""
    try:
        text = (path / C_API).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^#define ORT_API_VERSION (\d+)", text, flags=re.MULTILINE)
    return int(found[1]) if found else None
