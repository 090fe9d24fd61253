"""One mistake in a declaration or a case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opmatrix.errors import did_you_mean


@dataclass(frozen=True)
class Mistake:
    """One mistake: where (a field path such as ``inputs[0].type``) and what is wrong with it."""

    field: str
    text: str


def not_one_of(field: str, found: object, allowed: Iterable[object]) -> Mistake:
    names = [str(a) for a in allowed]
    return Mistake(field, f"found {found!r}, allowed: {', '.join(names)}{did_you_mean(str(found), names)}")


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted({n for n in names if names.count(n) > 1})
