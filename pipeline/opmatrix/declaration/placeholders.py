"""Places that `doit new` has marked and nobody has filled in: a placeholder is green, and stays at home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from opmatrix.errors import DistError
from opmatrix.project.paths import Paths

MARK = "FILL IN"
_ARITHMETIC = {"kernel.h", "reference.py"}


def marked_lines(text: str) -> list[int]:
    """Return the lines of a file that are to be filled in."""
    return [number for number, line in enumerate(text.split("\n"), 1) if MARK in line]


def unfilled(layout: Paths, operator: str) -> dict[Path, list[int]]:
    """Return the marked lines of an operator's files, by file; files without any are left out."""
    folders = (layout.op(operator), layout.kernel(operator).parent)
    files = sorted(p for folder in folders if folder.is_dir() for p in folder.iterdir() if p.is_file())
    found = {path: marked_lines(path.read_text(errors="replace")) for path in files}
    return {path: lines for path, lines in found.items() if lines}


def reminder(layout: Paths, operator: str) -> str:
    """Return a line that says what of an operator is to be filled in, or nothing."""
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
    """Return the marked lines of the operators' code, a file a line; "" where there are none. A README is no code."""
    marked: Mapping[Path, list[int]] = {
        path: lines for name in operators for path, lines in unfilled(layout, name).items() if path.suffix != ".md"
    }
    return "\n".join(f"  {path.relative_to(layout.root)}: {', '.join(map(str, at))}" for path, at in marked.items())


def require_filled(layout: Paths, operators: Iterable[str]) -> None:
    """Raise DistError if the code of an operator has a marked line; its README is not shipped."""
    if told := lines_in_code(layout, operators):
        raise DistError(
            f"a wheel holds no placeholders: {MARK} stands in lines of\n{told}\n"
            "Fill them in and remove the words, or name the operators that ship in pyproject.toml, "
            "[tool.opmatrix.dist] operators = [...]"
        )
