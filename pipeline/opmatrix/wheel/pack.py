"""Check that a wheel is linked from verified objects, and pack its files reproducibly: equal contents give equal bytes.

compile writes the digests of its objects and of the libraries that it linked from them, link-wheel those of the objects
that it linked. verify and register write the digest of the library that they loaded. Imports no framework.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from opmatrix.basics.errors import DistError
from opmatrix.basics.files import sha256
from opmatrix.declaration.checks import checks
from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.signature.signature import has_ort_library, has_torch_library
from opmatrix.wheel.settings import Dist

# The earliest time that ZIP has. It is fixed, as SOURCE_DATE_EPOCH recommends; nothing in a wheel reads it.
_TIME = (1980, 1, 1, 0, 0, 0)


def file_name(dist: Dist, platform: str) -> str:
    """Return the file name of the wheel."""
    return f"{dist.name}-{dist.version}-py3-none-{platform}.whl"


def pack(
    dist: Dist, platform: str, files: Mapping[str, bytes], licenses: Mapping[str, bytes], *, opmatrix: str
) -> bytes:
    """Return the bytes of the wheel; `licenses` are the files below `.dist-info/licenses`.

    Format: "Binary distribution format" of the Python Packaging User Guide. Entries are sorted, have one time stamp,
    and are not compressed, because compressed bytes depend on the version of zlib.
    """
    info = f"{dist.name}-{dist.version}.dist-info"
    whole = {
        **dict(sorted(files.items())),
        **{f"{info}/licenses/{name}": content for name, content in sorted(licenses.items())},
        f"{info}/METADATA": _metadata(dist, sorted(licenses)).encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: opmatrix ({opmatrix})\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
        ).encode(),
        f"{info}/top_level.txt": f"{dist.name}\n{dist.name}_onnxruntime\n".encode(),
    }
    record = f"{info}/RECORD"
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()) for name, content in whole.items()}
    rows = [f"{name},sha256={digests[name].rstrip(b'=').decode()},{len(whole[name])}" for name in whole]
    whole[record] = "".join(f"{row}\n" for row in [*rows, f"{record},,"]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in whole.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3  # Unix, whichever system packs
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)
    return made.getvalue()


def _metadata(dist: Dist, licenses: list[str]) -> str:
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", dist.name),
        ("Version", dist.version),
        ("Summary", dist.summary),
        *([("License-Expression", dist.license)] if dist.license else []),
        *(("License-File", name) for name in licenses),
        # The oldest that is tested. No library is linked to Python, so one wheel serves all versions.
        ("Requires-Python", ">=3.11"),
        # No dependency is required: running models needs no torch, and training needs no ONNX Runtime.
        ("Provides-Extra", "torch"),
        ("Requires-Dist", 'torch>=2.9; extra == "torch"'),
        ("Provides-Extra", "export"),
        ("Requires-Dist", 'torch>=2.9; extra == "export"'),
        ("Requires-Dist", 'onnx; extra == "export"'),
        ("Requires-Dist", 'onnxscript; extra == "export"'),
        ("Provides-Extra", "onnxruntime"),
        ("Requires-Dist", 'onnxruntime>=1.16; extra == "onnxruntime"'),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields)


RUN = "Run: doit dist"
_OF_LIBRARY = ("kernel", "search")  # the parts of register that an edit of the kernel repeats
_Proof = TypeVar("_Proof", verdict.Verdict, verdict.CheckRecord)


def check(paths: Paths, operators: Sequence[Operator], cells: Sequence[Cell]) -> dict[str, Any]:
    """Return how many cells and checks verify the operators of a wheel, and the digests of its objects.

    Raises DistError for the first difference on the way from the linked libraries to what was verified, and for a
    default cell or check that is not verified.
    """
    linked = _read(paths, paths.linked_record)
    _compare(paths, linked["libraries"], "the libraries of the wheel", "were linked")
    compiled: dict[str, str] = {}
    verdicts = records = 0
    for operator in operators:
        name, spec = operator.name, operator.spec
        built = _read(paths, paths.compiled_record(name))
        libraries = built["libraries"]
        _compare(paths, {**built["objects"], **libraries}, name, "was compiled")
        compiled |= built["objects"]
        for key in checks(paths, [operator], cells):
            record = _proven(verdict.read_check, paths.check_record(*key), key)
            records += 1
            if has_torch_library(spec) and key.check in _OF_LIBRARY:
                loaded = next((result["library"] for result in record.results if "library" in result), "")
                by = f"register {name} --part {key.check}"
                _require_same(paths, paths.torch_library(name), libraries, loaded, by=by)
        for lowering in spec.lowerings:
            for cell in operator.cells(cells):
                found = _proven(verdict.read, paths.verdict(name, lowering, cell), f"{name}-{lowering}@{cell}")
                verdicts += 1
                if lowering == "custom" and has_ort_library(spec):
                    by = f"verify {name} --cell {cell}"
                    _require_same(paths, paths.ort_library(name), libraries, found.library, by=by)
    for path, digest in linked["objects"].items():
        if compiled.get(path) != digest:
            raise DistError(f"the wheel's libraries are linked of another {path} than the verified one. {RUN}")
    return {"cells": verdicts, "checks": records, "objects": dict(sorted(linked["objects"].items()))}


def _proven(read: Callable[[Path], _Proof], path: Path, shown: object) -> _Proof:
    """Return a verdict, or the record of a check. Raises DistError unless it is verified."""
    try:
        proof = read(path)
    except (OSError, ValueError) as error:
        raise DistError(f"{shown} is not verified: {error}. {RUN}") from error
    if proof.outcome not in ("verified", "unsupported"):
        raise DistError(f"{shown} {proof.outcome}: {proof.detail} {RUN}")
    return proof


def _require_same(paths: Paths, library: Path, compiled: Mapping[str, str], loaded: str, *, by: str) -> None:
    shown = _shown(paths, library)
    if compiled.get(shown) != loaded:
        raise DistError(f"{shown} is another library than the one that `{by}` verified. {RUN}")


def _compare(paths: Paths, digests: Mapping[str, str], what: str, since: str) -> None:
    """Raise DistError for a file that is missing, or has another digest than it had."""
    for shown, expected in digests.items():
        path = paths.root / shown
        if not path.is_file() or sha256(path) != expected:
            problem = "changed" if path.is_file() else "is missing"
            raise DistError(f"{shown} {problem} since {what} {since}. {RUN}")


def _read(paths: Paths, path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DistError(f"{_shown(paths, path)} is missing or damaged. {RUN}") from error


def _shown(paths: Paths, path: Path) -> str:
    return path.relative_to(paths.root).as_posix()
