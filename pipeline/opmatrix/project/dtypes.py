"""The table of dtypes: C++ types, limits, and which torch, exporter and ONNX Runtime carries each.

docs/reference/dtypes.md shows it. The export stage looks up what an exporter does not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from opmatrix.basics.version import older
from opmatrix.spec import DType

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


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one dtype: all tables of dtypes are made of these.

    `since`: the first version of the matrix that carries it; none does where a column is missing. `cpp`: its type in
    C++, "" where no declaration has it. `header`: that of opmatrix/ which has the type. `greatest`: the greatest finite
    value of a floating one, 0 for others.
    """

    since: Mapping[Column, str]
    cpp: str = ""
    header: str = ""
    greatest: float = 0.0


FACTS: Mapping[str, Facts] = {
    "float16": Facts(since=_ALL, cpp="Half", header="half.h", greatest=65504.0),
    "bfloat16": Facts(since=_ALL, cpp="BFloat16", header="half.h", greatest=3.3895313892515355e38),
    "float32": Facts(since=_ALL, cpp="float", greatest=3.4028234663852886e38),
    "float64": Facts(since=_ALL, cpp="double", greatest=1.7976931348623157e308),
    "float8_e4m3fn": Facts(since=_FLOAT8, cpp="Float8E4M3FN", header="float8.h", greatest=448.0),
    "float8_e5m2": Facts(since=_FLOAT8, cpp="Float8E5M2", header="float8.h", greatest=57344.0),
    "float8_e4m3fnuz": Facts(since=_FLOAT8, cpp="Float8E4M3FNUZ", header="float8.h", greatest=240.0),
    "float8_e5m2fnuz": Facts(since=_FLOAT8, cpp="Float8E5M2FNUZ", header="float8.h", greatest=57344.0),
    "int4": Facts(since=_INT4, cpp="Int4", header="int4.h"),
    "uint4": Facts(since=_INT4, cpp="UInt4", header="int4.h"),
    "int8": Facts(since=_ALL, cpp="std::int8_t"),
    "int16": Facts(since=_ALL, cpp="std::int16_t"),
    "int32": Facts(since=_ALL, cpp="std::int32_t"),
    "int64": Facts(since=_ALL, cpp="std::int64_t"),
    "uint8": Facts(since=_ALL, cpp="std::uint8_t"),
    "uint16": Facts(since=_UNSIGNED, cpp="std::uint16_t"),
    "uint32": Facts(since=_UNSIGNED, cpp="std::uint32_t"),
    "uint64": Facts(since=_UNSIGNED, cpp="std::uint64_t"),
    "bool": Facts(since=_ALL, cpp="bool"),
    "string": Facts(since=_ORT, cpp="std::string"),
    "complex64": Facts(since=_COMPLEX),
    "complex128": Facts(since=_COMPLEX),
}
SINCE: Mapping[str, Mapping[Column, str]] = {name: facts.since for name, facts in FACTS.items()}
DTYPES: tuple[DType, ...] = get_args(DType)
FLOATS = tuple(name for name in DTYPES if FACTS[name].greatest)
FLOAT8 = tuple(name for name in DTYPES if FACTS[name].header == "float8.h")
FOUR_BITS = tuple(name for name in DTYPES if FACTS[name].header == "int4.h")


def carries(column: Column, dtype: str, version: str) -> bool:
    """Return whether a version of torch or of ONNX Runtime carries a dtype."""
    since = SINCE[dtype].get(column)
    return since is not None and not older(version, since)


def why_not_written(exporter: Column, dtypes: Iterable[str], torch: str) -> str:
    """Return which of the dtypes of a model an exporter of this torch does not write, or ""."""
    if exporter == "node":
        return ""
    refused = [dtype for dtype in dict.fromkeys(dtypes) if not carries(exporter, dtype, torch)]
    return f"the {exporter} exporter of torch {torch} writes no {', '.join(refused)}" if refused else ""


def element_name(dtype: str) -> str:
    """Return the name of the element type in ONNX: FLOAT for float32, FLOAT8E5M2 for float8_e5m2."""
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper().replace("_", ""))


def differences(reasons_by_dtype: Mapping[str, Mapping[Column, str]], *, version: str) -> list[str]:
    """Return how measured reasons, "" for a supported dtype, differ from the table SINCE."""
    wrong = []
    for dtype, reasons in reasons_by_dtype.items():
        for column, reason in reasons.items():
            if carries(column, dtype, version) != (not reason):
                since = SINCE[dtype].get(column)
                declared = f"from {since} on" if since else "nowhere"
                measured = f"not supported: {reason}" if reason else "supported"
                wrong.append(f"{NAMES[column]}, {version}: {dtype} is {measured}; declared: {declared}")
    return wrong
