"""A mutant: one small change of one file, and its name, which edits elsewhere in the file do not change; and the
mutants that a person found equivalent: ops/<name>/mutants.toml, each with its change and a reason."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opmatrix.basics.errors import OpmatrixError, SpecError, did_you_mean, many

Part = Literal["kernel", "lowering", "torch_op", "shape"]
_KEY = 12  # hexadecimal digits


class StaleMutantError(OpmatrixError):
    """A mutant of another version of a file."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One small change of one file.

    `start` and `end` are offsets in the UTF-8 bytes of the mutated text: of the file, or of a kernel that is a string
    in a spec.py. `line` is the line in the file in both cases.
    """

    path: str
    """The file, relative to the project's root, with ``/``."""
    kind: str
    """The operator of mutation, such as ``"comparison"``."""
    function: str
    """The function that contains it; "" outside of functions."""
    line: int
    """The first changed line, from 1."""
    start: int
    end: int
    before: str
    after: str
    context: str
    """The statement that contains it, in one line without comments, with ``«»`` around the changed place."""
    part: Part = "kernel"
    """What it is of, which decides the gates that could find it."""
    occurrence: int = 0
    """The number of mutants before it in the file that are equal in all of `identity`; `numbered` sets it."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What names the mutant, apart from `occurrence`; line breaks and indentation do not count."""
        texts = (" ".join(text.split()) for text in (self.before, self.after))
        return (self.path, self.kind, self.function, self.context, *texts)

    @property
    def key(self) -> str:
        """A hash of `identity` and `occurrence`: equal after edits of other statements of the file."""
        text = "\0".join((*self.identity, str(self.occurrence)))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY]

    @property
    def change(self) -> str:
        """The change in one line: the statement, and what is in place of the part in ``«»``."""
        return f"{self.context} -> {' '.join(self.after.split()) or '(nothing)'}"

    def applied(self, source: str) -> str:
        """Return the text with the change. Raises StaleMutantError where `source` is not the text it was made of."""
        data = source.encode()
        if (found := data[self.start : self.end].decode(errors="replace")) != self.before:
            raise StaleMutantError(
                f"{self.path}:{self.line}: mutant {self.key} ({self.kind}) replaces {self.before!r}, but "
                f"{found!r} is there: the file has changed since. Run doit mutate again"
            )
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """Return a unified diff; its line numbers are those of the file."""
        changed = self.applied(source)
        moved = self.line - 1 - source.encode()[: self.start].count(b"\n")
        where = f"{self.path}:{self.line}"
        lines = difflib.unified_diff(
            source.splitlines(), changed.splitlines(), where, f"{where} ({self.kind}, mutant {self.key})", lineterm=""
        )

        def shifted(match: re.Match[str]) -> str:
            return f"{match[1]}{int(match[2]) + moved}"

        return "".join(
            (re.sub(r"([-+])(\d+)(?=[ ,])", shifted, line) if line.startswith("@@ ") else line) + "\n" for line in lines
        )


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Return mutants in the order of the file, each once, with their `occurrence`."""
    places = {(m.path, m.start, m.end, m.after): m for m in reversed(list(mutants)) if m.before != m.after}
    ordered = sorted(places.values(), key=lambda m: (m.path, m.start, m.end, m.kind, m.after))
    seen: Counter[tuple[str, ...]] = Counter()
    counted = []
    for mutant in ordered:
        counted.append(dataclasses.replace(mutant, occurrence=seen[mutant.identity]))
        seen[mutant.identity] += 1
    return counted


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
    by_key = {mutant.key: mutant for mutant in mutants}
    mistakes += [mistake for number, table in enumerate(tables, 1) for mistake in _mistakes(number, table, by_key)]
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


def _mistakes(number: int, table: Mapping[str, Any], mutants: Mapping[str, Mutant]) -> Iterator[str]:
    where = f"mark {number}"
    for name in table:
        if name not in _FIELDS:
            yield f"{where}: unknown field {name!r}, allowed: {', '.join(_FIELDS)}{did_you_mean(name, _FIELDS)}"
    missing = [name for name in _FIELDS if not isinstance(table.get(name), str) or not str(table[name]).strip()]
    if missing:
        yield f"{where}: {' and '.join(missing)} must be a string; doit mutate prints the mark, and you add the reason"
    elif (mutant := mutants.get(table["mutant"])) is None:
        yield (
            f"{where}: no mutant {table['mutant']} ({table['change']}): the code around it has changed since. "
            "Delete the mark, and run doit mutate"
        )
    elif table["change"] != mutant.change:
        yield f"{where}: mutant {mutant.key} is {mutant.change!r}, not {table['change']!r}. Write that"


def _quoted(text: str) -> str:
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
