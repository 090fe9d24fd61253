"""Pieces of a page in GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def code(text: object) -> str:
    """Return a code span in which every character stands for itself, also within a table."""
    shown = str(text).replace("|", "\\|")
    fence = "``" if "`" in shown else "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def codes(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def plain(text: str) -> str:
    """Return a sentence as the content of one cell."""
    return " ".join(text.split()).replace("|", "\\|")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns in which no row has anything; "" without rows."""
    cells = [list(row) for row in rows]
    kept = [n for n in range(len(titles)) if any(row[n] for row in cells)]
    if not kept:
        return ""
    return "\n".join(_lines([[row[n] for n in kept] for row in ([*titles], ["---"] * len(titles), *cells)]))


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(row)} |" if row[0] != "---" else "|" + "---|" * len(row)
