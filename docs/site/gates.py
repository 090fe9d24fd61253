"""The pages of the gates and of the symptoms, from the faults that tests plant.

A fault is a row of a file of tests/faults, or, where a test of its own plants it, of tests/gates.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HEAD = ("project", "options", "section", "op", "file", "step", "old", "model", "models")  # the keys that name no fault
_SECTION = "Faults of models, kernels and fake kernels"  # of a fault that names no other


class Gate(NamedTuple):
    """A fault, the step that finds it, its message, and what plants it: a test or a file, below tests/."""

    fault: str
    step: str
    message: str
    planted_by: str


def _read(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def planted(tests: Path) -> Iterator[tuple[str, Gate]]:
    """Yield the faults of tests/faults, each with its section of the page."""
    for path in sorted((tests / "faults").glob("*.toml")):
        content = _read(path)
        for fault, edits in content.items():
            if fault not in HEAD:
                row = {"section": _SECTION, **content, **edits[0]}
                says = row["says"] if isinstance(row["says"], str) else row["says"][0]
                gate = Gate(fault, row["step"].partition(":")[0], says, str(path.relative_to(tests)))
                yield row["section"], gate


def named(tests: Path) -> Iterator[tuple[str, str, Sequence[Gate]]]:
    """Yield the sections of tests/gates.toml: title, introduction and rows."""
    for section in _read(tests / "gates.toml")["section"]:
        yield section["title"], section.get("says", ""), [Gate(*row) for row in section["rows"]]


def gates(tests: Path) -> Iterator[Gate]:
    """Yield every gate."""
    yield from (gate for _, gate in planted(tests))
    for _, _, rows in named(tests):
        yield from rows


def _shown(message: str) -> str:
    line = " ".join(message.split())  # a line break would end a row of a table
    return "-" if line == "-" else f"`` {line} ``" if "`" in line else f"`{line}`"


def render(tests: Path) -> str:
    """Return the page of all gates."""
    of_data = [*planted(tests)]
    lines = [
        "# Gates",
        "",
        "This page lists the faults that can occur between a declaration and a verified model: the step that finds "
        "each fault, its message, and what plants it below `tests/`: a file of `faults/` has the edit; else it is a "
        "test.",
    ]
    for title, says, rows in named(tests):
        lines += ["", f"## {title}", *(["", says] if says else []), "", "| fault | found by | message | planted by |"]
        lines.append("|---|---|---|---|")
        for gate in [*(gate for section, gate in of_data if section == title), *rows]:
            cells = gate.fault, gate.step, _shown(gate.message), f"`{gate.planted_by}`"
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def symptoms(text: str, tests: Path) -> str:
    """Return the page of the symptoms: ``{fault}`` in it is replaced by the message of the gate and what plants it.

    Raises KeyError for a fault that no gate has.
    """
    places = {gate.fault: f"{_shown(gate.message)} (`{gate.planted_by}`)".removeprefix("- ") for gate in gates(tests)}
    return re.sub(r"\{([^{}]+)\}", lambda found: places[found[1]], text)
