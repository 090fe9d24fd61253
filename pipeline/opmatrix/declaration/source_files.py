"""Find files of an operator that nothing reads, such as a misspelt lowerings.py, names that no step can use, and TODO
marks of `doit new` that are left: such an operator verifies but cannot be packed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from opmatrix.basics.errors import DistError, did_you_mean, many
from opmatrix.project.paths import Paths

PYTHON = ("spec.py", "cases.py", "reference.py", "lowering.py", "torch_op.py")
_CPP = ("kernel.h", "torch.cc", "ort.cc")
_CPP_SUFFIXES = (".h", ".hh", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".cu")
# What other tools read: packages, pytest, benchmarks.
_OF_OTHERS = re.compile(r"__init__\.py|conftest\.py|bench\.py|test_\w+\.py|\w+_test\.py")


def is_operator(folder: Path) -> bool:
    """Return whether a folder of ops/ is an operator: it has a spec.py of any kind, or another file that only an
    operator has, or a misspelt spec.py. Otherwise an operator would be missing without a message."""
    try:
        found = os.listdir(folder)  # noqa: PTH208 - names, where iterdir makes paths
    except NotADirectoryError:
        return False
    except OSError:  # no permission, or a link to nowhere or to itself: `read` reports it
        return True
    return any(name in PYTHON or (name.endswith(".py") and did_you_mean(name, PYTHON[:1])) for name in found)


def mistakes(paths: Paths, name: str) -> Iterator[str]:
    """Yield what is wrong with the names and kinds of the files in ops/<name>/ and native/<name>/."""
    native = paths.kernel(name).parent
    for folder in (paths.op(name), native, paths.native / "include", paths.native / "binding"):
        yield from _unusable_names(paths, folder)
    for path in (*(paths.op(name) / file for file in PYTHON[2:]), *(native / file for file in _CPP)):
        if os.path.lexists(path) and not path.is_file():
            yield f"{path.relative_to(paths.root)}: found no file but a folder, a pipe or a broken link; replace it"
    yield from _unread(paths, paths.op(name), names=PYTHON, suffixes=(".py", *_CPP_SUFFIXES))
    yield from _unread(paths, native, names=_CPP, suffixes=_CPP_SUFFIXES)


def _unusable_names(paths: Paths, folder: Path) -> Iterator[str]:
    """Yield the files below a folder whose names cannot be written to the journal or to a list of files."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if not name.isprintable():
                shown = (Path(parent) / name).relative_to(paths.root)
                yield f"{shown}: its name is not UTF-8, or has a control character; rename it"


def _unread(paths: Paths, folder: Path, *, names: tuple[str, ...], suffixes: tuple[str, ...]) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        others = [e.name for e in entries if e.name.endswith(suffixes) and e.name not in names and e.name[0] != "."]
        for name in sorted(others):
            if not _OF_OTHERS.fullmatch(name) and name.isprintable() and not _is_named(folder, name):
                hint = did_you_mean(name, names)
                if not hint and not name.endswith(".py") and folder == paths.op(folder.name):
                    hint = f"; C++ belongs to native/{folder.name}/"
                allowed = f"{', '.join(names)}, and files that one of these names"
                yield f"{(folder / name).relative_to(paths.root)}: nothing reads it, allowed: {allowed}{hint}"


def _is_named(folder: Path, name: str) -> bool:
    """Return whether another file of ops/ or native/ imports or includes a file, or has its name in quotes."""
    stem = re.escape(Path(name).stem)
    quoted = rf"[\"'</]{re.escape(name)}[\"'>]"
    named = re.compile(rf"^\s*(?:from|import)\b.*\b{stem}\b|{quoted}" if name.endswith(".py") else quoted, re.MULTILINE)
    files = (p for p in folder.parent.rglob("*") if p.suffix in (".py", *_CPP_SUFFIXES) and p != folder / name)
    return any(named.search(p.read_text(errors="replace", encoding="utf-8")) for p in files if p.is_file())


MARK = "TODO"
# Not the author's own `TODO(name)`. "FILL IN" was the mark of earlier revisions: such a placeholder must not ship.
_MARKED = re.compile(rf"\b{MARK}\b(?!\()|\bFILL IN\b")
_FILES = {"spec.py", "cases.py", "reference.py", "README.md", "kernel.h"}  # those that `doit new` writes
REMEDY = f"Do them and remove the word {MARK} ({MARK}(name) does not count)"
_ARITHMETIC = {"kernel.h", "reference.py"}


def marked_lines(text: str) -> list[int]:
    """Return the numbers of the lines that have a mark."""
    return [number for number, line in enumerate(text.split("\n"), 1) if _MARKED.search(line)]


def _marked(files: Iterable[Path]) -> dict[Path, list[int]]:
    """Return the marked lines of those files that are there and have any."""
    there = [path for path in files if path.is_file()]
    marked = {path: marked_lines(path.read_text(errors="replace", encoding="utf-8")) for path in there}
    return {path: lines for path, lines in marked.items() if lines}


def unfilled(paths: Paths, operator: str) -> dict[Path, list[int]]:
    """Return the marked lines of an operator's files, by file, without files that have none."""
    folders = (paths.op(operator), paths.kernel(operator).parent)
    return _marked(sorted(folder / name for folder in folders for name in _FILES))


def unfinished(paths: Paths, operator: str, *files: str) -> list[str]:
    """Return those of the files in ops/<name>/ that have a mark."""
    return [path.name for path in _marked(paths.op(operator) / file for file in files)]


def reminder(paths: Paths, operator: str) -> str:
    """Return a line about the TODOs of an operator, or \"\"."""
    if not (found := unfilled(paths, operator)):
        return ""
    count, first = sum(map(len, found.values())), next(iter(found))
    names = {path.name for path in found}
    what = "it is a placeholder" if names & _ARITHMETIC else "`doit dist` refuses it"
    if names == {"README.md"}:
        what = "only its README is unfinished"
    at = f"{first.relative_to(paths.root)}:{found[first][0]}"
    return f"{operator}: {many(count, MARK)} left (first: {at}); {what}"


def lines_in_code(paths: Paths, operators: Iterable[str]) -> str:
    """Return the marked lines of the operators' code, one file per line, or "". README.md is not code."""
    marked = [(path, at) for name in operators for path, at in unfilled(paths, name).items() if path.suffix != ".md"]
    return "\n".join(f"  {path.relative_to(paths.root)}: {', '.join(map(str, at))}" for path, at in marked)


def require_filled(paths: Paths, operators: Iterable[str]) -> None:
    """Raise DistError if the code of an operator has a marked line; a wheel does not contain the README."""
    if lines := lines_in_code(paths, operators):
        raise DistError(
            f"a wheel must not contain placeholders: {MARK}s are left in the lines\n{lines}\n"
            f"{REMEDY}. Or name the operators that ship in pyproject.toml, [tool.opmatrix.dist] operators = [...]"
        )
