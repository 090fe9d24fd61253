"""The data that the forked process of a row sends to its parent. Imports no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["torch", "onnxruntime"]
Record = dict[str, Any]
"""JSON data, as bench.schema.json and against.schema.json describe it."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The worst output: its name, its largest absolute error, and that error as a fraction of the declared tolerance
    (`opmatrix.testdata.compare`). `problem`: why there is no number."""

    output: str = ""
    absolute: float | None = None
    tolerance_used: float | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A contestant that waits for its turn, or why it does not take part. `calls`: how many a batch has. `amount`: what
    one pass of a loop does. `moved`: the bytes of the inputs and outputs, of the operator itself."""

    name: str
    side: Side
    ours: bool = False
    skipped: str = ""
    calls: int = 0
    amount: float = 0.0
    moved: int = 0
    peak_memory: int | None = None
    errors: Errors | None = None
