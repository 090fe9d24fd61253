"""What became of a mutant, kept by the content of all that it depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from opmatrix.files import write_text

Outcome = Literal["killed", "survived", "equivalent", "invalid", "stopped"]
"""``equivalent``: it compiles to equal objects. ``invalid``: it does not compile. ``stopped``: it exceeded a limit of
time or memory. None of these three counts."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """`gate`: which gate found it, the last one of a survivor. `case`: the input that killed it, if known. `why`: the
    first line of the gate's message. `cpu`: the CPU seconds of its gates. `part`: the part of register
    that killed it. `depends`: digests by name of all that the outcome depends on."""

    outcome: Outcome
    gate: str = ""
    part: str = ""
    case: str = ""
    why: str = ""
    cpu: float = 0.0
    depends: Mapping[str, str] = field(default_factory=dict)
    nearest: Mapping[str, Any] = field(default_factory=dict)
    """Of a survivor, what `nearest.Search.known_of` returns: the nearest cases, and an input that tells it from the
    kernel."""


def read(path: Path) -> dict[str, Result]:
    """Return the results in a file of `write` by the keys of mutants: none where it is missing or damaged."""
    try:
        return {str(key): _result(data) for key, data in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _result(data: Any) -> Result:
    result = Result(**data)
    if result.outcome not in get_args(Outcome):
        raise ValueError(result.outcome)
    return result


def write(path: Path, results: Mapping[str, Result]) -> None:
    """Write all results, a line for each."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(asdict(results[key]))}" for key in sorted(results))
    write_text(path, f"{{\n{lines}\n}}\n")
