"""Pieces of a page in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def code(text: object) -> str:
    """Return a code span in which every character stands for itself; "" of nothing."""
    shown = str(text)
    fence = "``" if "`" in shown else "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def codes(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def prose(text: str) -> str:
    """Return text that may hold code spans, so that ``ops/<name>/`` outside of them is no tag of HTML."""
    pieces = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(piece if piece.startswith("`") else piece.replace("<", "\\<") for piece in pieces)


def plain(text: str) -> str:
    """Return a text as `prose` has it, in one line."""
    return prose(" ".join(text.split()))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns in which no row has anything; "" without rows."""
    cells = [[field.replace("|", "\\|") for field in row] for row in rows]
    kept = [n for n in range(len(titles)) if any(row[n] for row in cells)]
    head, *lines = (f"| {' | '.join(row[n] for n in kept)} |" for row in (titles, *cells))
    return "\n".join([head, f"|{'---|' * len(kept)}", *lines]) if kept else ""
