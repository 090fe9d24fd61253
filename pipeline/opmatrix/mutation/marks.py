"""Mutants that a person found equivalent: ops/<name>/mutants.toml, each with its change and a reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.errors import SpecError, did_you_mean, many
from opmatrix.mutation.mutant import Mutant

FILE = "mutants.toml"
MOST = 0.05
"""The share of an operator's mutants that may be marked: more would be a score by hand."""
TABLE = "equivalent"
_FIELDS = ("mutant", "change", "reason")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A mutant that no gate can find, and why."""

    mutant: str
    """`Mutant.key`, which depends on the code around the change."""
    change: str
    """`Mutant.change`, for readers."""
    reason: str


def as_toml(mutant: Mutant, reason: str = "") -> str:
    """Return the mark of a mutant, to be pasted into mutants.toml; without a reason it is refused."""
    values = {"mutant": mutant.key, "change": mutant.change, "reason": reason}
    return f"[[{TABLE}]]\n" + "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())


def read_marks(path: Path, mutants: Sequence[Mutant]) -> dict[str, Mark]:
    """Return the marks of an operator by the key of their mutant; none where the file is missing.

    `mutants` are all of the operator. Raises SpecError with all mistakes: a file that is no TOML, an unknown field, no
    reason, a mark whose mutant is gone or has another change, more marks than `MOST` allows.
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: no TOML: {error}. Correct it, or delete it: doit mutate prints marks") from error
    tables = read.get(TABLE, [])
    mistakes = [f"unknown name {name!r}, allowed: [[{TABLE}]]{did_you_mean(name, (TABLE,))}" for name in read
                if name != TABLE]  # fmt: skip
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        mistakes.append(f"{TABLE} must be a list of tables; write [[{TABLE}]] above each")
        tables = []
    known = {mutant.key: mutant for mutant in mutants}
    mistakes += [mistake for number, table in enumerate(tables, 1) for mistake in _mistakes(number, table, known)]
    keys = [str(table.get("mutant")) for table in tables]
    mistakes += [f"mutant {key!r} is marked {keys.count(key)} times" for key in sorted({*keys}) if keys.count(key) > 1]
    if len(tables) > (most := int(MOST * len(mutants))):
        mistakes.append(
            f"{many(len(tables), 'mark')}, allowed: {most}, {MOST:.0%} of {many(len(mutants), 'mutant')}. "
            "Find inputs that tell the mutant and the kernel apart, or make the code simpler"
        )
    if mistakes:
        raise SpecError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    return {table["mutant"]: Mark(**table) for table in tables}


def _mistakes(number: int, table: Mapping[str, Any], known: Mapping[str, Mutant]) -> Iterator[str]:
    where = f"mark {number}"
    for name in table:
        if name not in _FIELDS:
            yield f"{where}: unknown field {name!r}, allowed: {', '.join(_FIELDS)}{did_you_mean(name, _FIELDS)}"
    missing = [name for name in _FIELDS if not isinstance(table.get(name), str) or not str(table[name]).strip()]
    if missing:
        yield f"{where}: {' and '.join(missing)} must be a string; doit mutate prints the mark, and you add the reason"
    elif (mutant := known.get(table["mutant"])) is None:
        yield (
            f"{where}: no mutant {table['mutant']} ({table['change']}): the code around it has changed since. "
            "Delete the mark, and run doit mutate"
        )
    elif table["change"] != mutant.change:
        yield f"{where}: mutant {mutant.key} is {mutant.change!r}, not {table['change']!r}. Write that"


def _quoted(text: str) -> str:
    """Return a TOML string."""
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
