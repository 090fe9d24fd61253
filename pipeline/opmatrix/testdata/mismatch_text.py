"""The record of a failing case in at most 14 lines for a terminal of 80 columns, in the words of numpy.testing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WIDTH = 78  # the messages of steps are indented by two
_LABEL = "  difference"


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a record of `opmatrix.testdata.mismatch`."""
    limits = f", rtol={record['rtol']:g} atol={record['atol']:g}" if record["rtol"] or record["atol"] else ""
    yield from _wrapped(f"output {record['output']}: {record['dtype']} {_shape(record['shape'])}{limits}", 1)
    yield from _wrapped(f"actual: {record['actual_is']}; expected: {record['expected_is']}", 1)
    if record["problem"]:
        yield from _wrapped(f"Mismatch: {record['problem']}")
    elif "worst" in record:
        yield from _errors(record)
        yield from _around(record)
    inputs = (f"{one['name']} {one['dtype']} {_shape(one['shape'])}" for one in record["inputs"])
    yield from _wrapped(f"inputs: {', '.join(inputs)}")
    if record["attributes"]:
        yield from _wrapped(f"attributes: {', '.join(f'{k}={v}' for k, v in record['attributes'].items())}", 1)


def _errors(record: Mapping[str, Any]) -> Iterator[str]:
    share = 100 * record["differing"] / record["elements"]
    yield f"Mismatched elements: {record['differing']} / {record['elements']} ({share:.3g}%)"
    worst = record["worst"]
    at = f" at {_index(worst['at'])}" if worst["at"] else ""
    if worst["error"] is None or record["dtype"] in ("string", "bool"):
        strange = "" if record["dtype"] in ("string", "bool") else ", with NaN or an infinity on one side"
        yield f"One of them{at}{strange}"
    else:
        yield f"Max absolute difference: {worst['error']:g}{at}"
    found = {"relative": record["relative"], "ULP": worst["ulp"]}
    if shown := [f"Max {name} difference: {value:g}" for name, value in found.items() if value]:
        yield ", ".join(shown)
    if record["pattern"]:
        yield from _wrapped(f"Mismatched: {record['pattern']}")


def _around(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the neighbours of the worst element along the last axis: expected, actual and difference."""
    around, index = record["around"], record["worst"]["at"]
    at = index[-1] - around["from"] if index else 0
    columns = [
        (_number(e), _number(a), _difference(e, a)) for e, a in zip(around["expected"], around["actual"], strict=True)
    ]
    width = max(len(text) for column in columns for text in column) + 2
    room = max(1, min(len(columns), (_WIDTH - len(_LABEL)) // width))
    first = max(0, min(at - room // 2, len(columns) - room))
    begin = around["from"] + first
    shown = columns[first : first + room]
    if index:
        yield f"at [{', '.join([*map(str, index[:-1]), f'{begin}:{begin + len(shown)}'])}]"
    for label, row in zip(("expected", "actual", "difference"), zip(*shown, strict=True), strict=True):
        if any(row):
            yield f"{label:>{len(_LABEL)}}" + "".join(f"{text:>{width}}" for text in row)


def _number(value: Any) -> str:
    if isinstance(value, bool | str):
        return _cut(value if value in ("NaN", "Infinity", "-Infinity") else repr(value))
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _difference(expected: Any, actual: Any) -> str:
    """Return how far the actual value is from the expected one; "" where they are no numbers."""
    if any(isinstance(value, bool | str) for value in (expected, actual)):
        return ""
    return f"{actual - expected:.3g}"


def _cut(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _index(index: Sequence[int]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _wrapped(text: str, most: int = 2) -> list[str]:
    """Wrap at words; what takes more lines than `most` is cut."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", max_lines=most, placeholder=" ...")
