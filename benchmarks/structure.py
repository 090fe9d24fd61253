"""The size and the shape of the package: lines, modules, rooms, the imports between rooms and their cycles.

    ./run python benchmarks/structure.py                    the working tree
    ./run python benchmarks/structure.py d912c67 HEAD       revisions, then the working tree

git reads the revisions without a checkout. `code` is what pygount 3.2 counts (benchmarks/lines.py): no blank lines,
comments, docstrings or lines with only brackets. A room is a folder or a module at the top of the package; an arrow
means that one room imports another, anywhere in a file; a cycle is a group of rooms that import each other, directly or
indirectly.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.site.imports import Arrow, Package, cycles  # noqa: E402  # docs/ is importable from the root alone

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_WHITE = {"(", ")", "[", "]", "{", "}", ",", ":", ";", "pass"}  # pygount ignores a line of these only


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What the command prints of one tree."""

    lines: int
    code: int
    modules: int
    median: float
    rooms: Sequence[str]
    loose: int
    arrows: Mapping[Arrow, Sequence[str]]
    cycles: Sequence[Sequence[str]]

    @classmethod
    def of(cls, package: Package) -> Structure:
        lengths = [text.count("\n") for text in package.modules.values()]
        arrows = package.arrows()
        return cls(
            lines=sum(lengths),
            code=sum(map(code_lines, package.modules.values())),
            modules=len(lengths),
            median=statistics.median(lengths),
            rooms=sorted(package.rooms),
            loose=len(package.loose()),
            arrows=arrows,
            cycles=cycles(arrows.keys()),
        )

    def row(self) -> dict[str, str]:
        return {
            "lines of Python": f"{self.lines:,}",
            "lines of code": f"{self.code:,}",
            "modules": f"{self.modules}",
            "median lines of a module": f"{self.median:g}",
            "rooms": f"{len(self.rooms)}",
            "of them loose modules": f"{self.loose}",
            "arrows between rooms": f"{len(self.arrows)}",
            "cycles between rooms": f"{len(self.cycles)}",
            "rooms in cycles": f"{sum(map(len, self.cycles))}",
        }


def code_lines(text: str) -> int:
    """Return the number of lines of code in a Python file."""
    docstrings = set(_docstring_lines(ast.parse(text)))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT and token.string not in _WHITE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of docstrings. pygount counts a string below a field as code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def table(found: Mapping[str, Structure]) -> Iterator[str]:
    """Yield the lines of the table, one column for each tree."""
    rows = {name: one.row() for name, one in found.items()}
    labels = list(next(iter(rows.values())))
    left = max(map(len, labels))
    widths = {name: max(len(name), *map(len, row.values())) for name, row in rows.items()}
    yield " " * left + "".join(f"  {name:>{widths[name]}}" for name in rows)
    for label in labels:
        yield f"{label:<{left}}" + "".join(f"  {row[label]:>{widths[name]}}" for name, row in rows.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revisions", nargs="*", metavar="REV", help="a git revision")
    found: dict[str, Structure] = {}
    for revision in parser.parse_args().revisions:
        try:
            found[revision] = Structure.of(Package.at_revision(ROOT, revision))
        except subprocess.CalledProcessError as error:
            sys.exit(f"structure.py: {revision}: {error.stderr.decode().strip()}")
    found["working tree"] = Structure.of(Package.in_folder(ROOT))
    print(*table(found), sep="\n")
    for name, structure in found.items():
        for cycle in structure.cycles:
            print(f"\na cycle in {name}: {', '.join(cycle)}")
            for (importing, imported), lines in structure.arrows.items():
                if (imported, importing) in structure.arrows and {importing, imported} <= {*cycle}:
                    print(f"  {importing} -> {imported}: {lines[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
