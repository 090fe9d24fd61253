"""A mutant: one small change of one file, and its name, which edits elsewhere in the file do not change."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from opmatrix.errors import OpmatrixError

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
    found = []
    for mutant in ordered:
        found.append(dataclasses.replace(mutant, occurrence=seen[mutant.identity]))
        seen[mutant.identity] += 1
    return found
