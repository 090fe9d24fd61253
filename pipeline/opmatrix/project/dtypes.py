"""Which torch, exporter and ONNX Runtime carries which dtype: what `doit probe` measures, as a table.

docs/reference/dtypes.md shows it. The export stage looks up what an exporter does not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from opmatrix.basics.version import older
from opmatrix.project.cells import Exporter

Column = Literal["torch", "stable", "legacy", "dynamo", "node", "ort"]
"""A column of the table; docs/reference/dtypes.md describes what each means."""

NAMES: Mapping[Column, str] = {
    "torch": "torch, classic binding",
    "stable": "torch, stable ABI",
    "legacy": "legacy exporter",
    "dynamo": "dynamo exporter",
    "node": "node model",
    "ort": "ONNX Runtime",
}

_ORT: Mapping[Column, str] = {"node": "1.16", "ort": "1.16"}
_ALL: Mapping[Column, str] = {"torch": "1.13", "stable": "2.9", "legacy": "1.13", "dynamo": "2.6", **_ORT}
_FLOAT8: Mapping[Column, str] = {"torch": "2.6", "stable": "2.9", "legacy": "2.6", "dynamo": "2.6", **_ORT}
_UNSIGNED: Mapping[Column, str] = {"torch": "2.6", "stable": "2.9", "dynamo": "2.6", **_ORT}
_INT4: Mapping[Column, str] = {"node": "1.21", "ort": "1.21"}
_COMPLEX: Mapping[Column, str] = {"torch": "1.13", "stable": "2.9"}

# The first version of the matrix that carries a dtype; none does where a column is missing.
SINCE: Mapping[str, Mapping[Column, str]] = {
    "float16": _ALL,
    "bfloat16": _ALL,
    "float32": _ALL,
    "float64": _ALL,
    "float8_e4m3fn": _FLOAT8,
    "float8_e5m2": _FLOAT8,
    "float8_e4m3fnuz": _FLOAT8,
    "float8_e5m2fnuz": _FLOAT8,
    "int4": _INT4,
    "uint4": _INT4,
    "int8": _ALL,
    "int16": _ALL,
    "int32": _ALL,
    "int64": _ALL,
    "uint8": _ALL,
    "uint16": _UNSIGNED,
    "uint32": _UNSIGNED,
    "uint64": _UNSIGNED,
    "bool": _ALL,
    "string": _ORT,
    "complex64": _COMPLEX,
    "complex128": _COMPLEX,
}


def carries(column: Column, dtype: str, version: str) -> bool:
    """Return whether a version of torch or of ONNX Runtime carries a dtype."""
    since = SINCE[dtype].get(column)
    return since is not None and not older(version, since)


def why_not_written(exporter: Exporter, dtypes: Iterable[str], torch: str) -> str:
    """Return which of the dtypes of a model an exporter of this torch does not write, or ""."""
    if exporter == "node":
        return ""
    refused = [dtype for dtype in dict.fromkeys(dtypes) if not carries(exporter, dtype, torch)]
    return f"the {exporter} exporter of torch {torch} writes no {', '.join(refused)}" if refused else ""


def element_name(dtype: str) -> str:
    """Return the name of the element type in ONNX: FLOAT for float32, FLOAT8E5M2 for float8_e5m2."""
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper().replace("_", ""))


def differences(found: Mapping[str, Mapping[Column, str]], *, version: str) -> list[str]:
    """Return how measured reasons, "" for a supported dtype, differ from the table SINCE."""
    wrong = []
    for dtype, reasons in found.items():
        for column, reason in reasons.items():
            if carries(column, dtype, version) != (not reason):
                since = SINCE[dtype].get(column)
                declared = f"from {since} on" if since else "nowhere"
                measured = f"not supported: {reason}" if reason else "supported"
                wrong.append(f"{NAMES[column]}, {version}: {dtype} is {measured}; declared: {declared}")
    return wrong
