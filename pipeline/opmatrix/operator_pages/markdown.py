"""Code spans, escaped text and tables in GitHub's Markdown, for the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def code(text: object) -> str:
    """Return `text` as a code span, which shows every character literally; "" for an empty text."""
    shown = str(text)
    fence = "``" if "`" in shown else "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def codes(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def prose(text: str) -> str:
    """Escape ``<`` outside code, so that ``ops/<name>/`` is not read as an HTML tag."""
    pieces = re.split(r"(``.+?``|`[^`]+`|^ {4}.*)", text, flags=re.MULTILINE)
    return "".join(piece if piece.startswith(("`", "    ")) else piece.replace("<", "\\<") for piece in pieces)


def plain(text: str) -> str:
    """Return `text` on one line, escaped by `prose`."""
    return prose(" ".join(text.split()))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without its empty columns; "" without rows."""
    cells = [[field.replace("|", "\\|") for field in row] for row in rows]
    kept = [n for n in range(len(titles)) if any(row[n] for row in cells)]
    head, *lines = (f"| {' | '.join(row[n] for n in kept)} |" for row in (titles, *cells))
    return "\n".join([head, f"|{'---|' * len(kept)}", *lines]) if kept else ""
