"""TODO marks of `doit new` that are left in an operator's files: such an operator verifies but cannot be packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from opmatrix.errors import DistError
from opmatrix.project.paths import Paths

MARK = "FILL IN"
_ARITHMETIC = {"kernel.h", "reference.py"}


def marked_lines(text: str) -> list[int]:
    """Return the numbers of the lines that have a mark."""
    return [number for number, line in enumerate(text.split("\n"), 1) if MARK in line]


def unfilled(layout: Paths, operator: str) -> dict[Path, list[int]]:
    """Return the marked lines of an operator's files, by file, without files that have none."""
    folders = (layout.op(operator), layout.kernel(operator).parent)
    files = sorted(p for folder in folders if folder.is_dir() for p in folder.iterdir() if p.is_file())
    found = {path: marked_lines(path.read_text(errors="replace")) for path in files}
    return {path: lines for path, lines in found.items() if lines}


def unfinished(layout: Paths, operator: str, *files: str) -> list[str]:
    """Return those of the files in ops/<name>/ that have a mark."""
    paths = [layout.op(operator) / file for file in files]
    return [path.name for path in paths if path.is_file() and marked_lines(path.read_text(errors="replace"))]


def reminder(layout: Paths, operator: str) -> str:
    """Return a line about what is left to fill in of an operator, or \"\"."""
    if not (found := unfilled(layout, operator)):
        return ""
    count, first = sum(map(len, found.values())), next(iter(found))
    names = {path.name for path in found}
    until = "until then it is a placeholder"
    if not names & _ARITHMETIC:
        until = "its README is unfinished, nothing else" if names == {"README.md"} else "until then it does not ship"
    return (
        f"{operator}: {MARK} stands in {count} line{'s' * (count > 1)} still, the first is "
        f"{first.relative_to(layout.root)}:{found[first][0]}; {until}"
    )


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
            f"a wheel holds no placeholders: {MARK} stands in lines of\n{lines}\n"
            "Fill them in and remove the words, or name the operators that ship in pyproject.toml, "
            "[tool.opmatrix.dist] operators = [...]"
        )
