"""Pack files as a wheel, reproducibly: equal contents give equal bytes on every machine. Pure.

Format: "Binary distribution format" of the Python Packaging User Guide. Entries are sorted,
have one time stamp, and are not compressed, because compressed bytes depend on the version of zlib.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping

from opmatrix.wheel.settings import Dist

# The earliest time that ZIP has. It is fixed, as SOURCE_DATE_EPOCH recommends; nothing in a wheel reads it.
_TIME = (1980, 1, 1, 0, 0, 0)


def file_name(dist: Dist, platform: str) -> str:
    """Return the file name of the wheel."""
    return f"{dist.name}-{dist.version}-py3-none-{platform}.whl"


def pack(
    dist: Dist, platform: str, files: Mapping[str, bytes], licenses: Mapping[str, bytes], *, opmatrix: str
) -> bytes:
    """Return the bytes of the wheel; `licenses` are the files below `.dist-info/licenses`."""
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
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in whole.items()]
    whole[record] = "".join(f"{row}\n" for row in [*rows, f"{record},,"]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, content in whole.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3  # Unix, whichever system packs
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)
    return made.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


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
