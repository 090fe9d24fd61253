"""TODO marks of `doit new` that are left in an operator's files: such an operator verifies but cannot be packed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from opmatrix.errors import DistError, many
from opmatrix.project.paths import Paths

MARK = "TODO"
# Not the author's own `TODO(name)`. "FILL IN" was the mark of earlier revisions: such a placeholder must not ship.
_MARKED = re.compile(rf"\b{MARK}\b(?!\()|\bFILL IN\b")
_FILES = {"spec.py", "cases.py", "reference.py", "README.md", "kernel.h"}  # those that `doit new` writes
REMEDY = f"Do them and remove the word {MARK} ({MARK}(name) does not count)"
_ARITHMETIC = {"kernel.h", "reference.py"}


def marked_lines(text: str) -> list[int]:
    """Return the numbers of the lines that have a mark."""
    return [number for number, line in enumerate(text.split("\n"), 1) if _MARKED.search(line)]


def unfilled(layout: Paths, operator: str) -> dict[Path, list[int]]:
    """Return the marked lines of an operator's files, by file, without files that have none."""
    folders = (layout.op(operator), layout.kernel(operator).parent)
    files = sorted(path for folder in folders for name in _FILES if (path := folder / name).is_file())
    found = {path: marked_lines(path.read_text(errors="replace", encoding="utf-8")) for path in files}
    return {path: lines for path, lines in found.items() if lines}


def unfinished(layout: Paths, operator: str, *files: str) -> list[str]:
    """Return those of the files in ops/<name>/ that have a mark."""
    paths = [layout.op(operator) / file for file in files]
    return [
        path.name
        for path in paths
        if path.is_file() and marked_lines(path.read_text(errors="replace", encoding="utf-8"))
    ]


def reminder(layout: Paths, operator: str) -> str:
    """Return a line about the TODOs of an operator, or \"\"."""
    if not (found := unfilled(layout, operator)):
        return ""
    count, first = sum(map(len, found.values())), next(iter(found))
    names = {path.name for path in found}
    what = "it is a placeholder" if names & _ARITHMETIC else "`doit dist` refuses it"
    if names == {"README.md"}:
        what = "only its README is unfinished"
    at = f"{first.relative_to(layout.root)}:{found[first][0]}"
    return f"{operator}: {many(count, MARK)} left (first: {at}); {what}"


def lines_in_code(layout: Paths, operators: Iterable[str]) -> str:
    """Return the marked lines of the operators' code, one file per line, or "". README.md is not code."""
    marked: Mapping[Path, list[int]] = {
        path: lines for name in operators for path, lines in unfilled(layout, name).items() if path.suffix != ".md"
    }
    return "\n".join(f"  {path.relative_to(layout.root)}: {', '.join(map(str, at))}" for path, at in marked.items())


def require_filled(layout: Paths, operators: Iterable[str]) -> None:
    """Raise DistError if the code of an operator has a marked line; a wheel does not contain the README."""
    if lines := lines_in_code(layout, operators):
        raise DistError(
            f"a wheel must not contain placeholders: {MARK}s are left in the lines\n{lines}\n"
            f"{REMEDY}. Or name the operators that ship in pyproject.toml, [tool.opmatrix.dist] operators = [...]"
        )
