"""Make all checks in order, and print what each finds with its remedy."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from opmatrix.basics.errors import UsageError, many, print_error, printable
from opmatrix.basics.finding import Finding, Mark, note, wrong
from opmatrix.doctor import folders, machine, packages
from opmatrix.doctor.shared_cache import shared_cache
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.project.settings import find_root

# The mark, the mark for a terminal without Unicode, and the colour.
_MARKS: Mapping[Mark, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "32"), "wrong": ("✗", "X", "31"), "note": ("○", "-", "33"),
}  # fmt: skip
_WIDTH = max(map(len, ("sanitizers", "packages")))


def main(arguments: Sequence[str]) -> int:
    """Print all findings. Returns 0, 1 if something that doit needs is missing, 2 for a wrong command line."""
    if arguments:
        print_error(f"doctor takes no arguments, found {' '.join(arguments)!r}")
        return UsageError.exit_code
    found = []
    for one in examine(Path.cwd(), os.environ):
        found.append(one)
        _print(one, sys.stdout)
    print(summary(found), flush=True)
    return int(any(one.mark == "wrong" for one in found))


def examine(start: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings of all checks for the project around the folder `start`, if there is one."""
    try:
        paths: Paths | None = Paths(find_root(start))
    except UsageError:
        paths = None
    checkout = paths is not None and (paths.root / "run").is_file()
    cache = cache_folder(environ)
    use: dict[str, Path] = {"build": paths.build} if paths else {}
    checks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("system", machine.system),
        ("Python", machine.python),
        ("packages", lambda: packages.packages("./run doit doctor, which makes .venv" if checkout else _INSTALL)),
        ("compiler", lambda: machine.compiler(environ)),
        ("ninja", lambda: machine.ninja(environ)),
        ("headers", lambda: machine.headers(environ)),
        ("disk", lambda: machine.disk({**use, "temporary files": _temporary(environ), "cache": cache})),
    ]
    if paths:
        here = paths
        checks += [
            ("project", lambda: folders.project(here)),
            (".venv", lambda: folders.main_environment(here.root, environ) if checkout else ()),
            ("lock", lambda: folders.lock(here)),
            ("state", lambda: folders.state(here)),
            ("matrix", lambda: folders.environments(here)),
            ("cache", lambda: shared_cache(here, environ)),
        ]
    else:
        checks.append(("project", lambda: [_NO_PROJECT]))
    checks.append(("sizes", lambda: folders.caches(paths, cache)))
    for subject, check in checks:
        try:
            yield from check()
        except Exception as error:  # a broken machine may fail in a way that no check foresees
            yield wrong(subject, f"cannot be examined: {type(error).__name__}: {error}")


def _temporary(environ: Mapping[str, str]) -> Path:
    """Return the folder for temporary files, also where none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(environ.get("TMPDIR") or "/tmp")


_NO_PROJECT = note("project", "none in this folder. Make one: opmatrix new --project DIR")
_INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/cpu && pip install opmatrix"


def summary(found: Sequence[Finding]) -> str:
    """Return the last line: how many problems and notes there are."""
    problems = [one.question for one in found if one.mark == "wrong"]
    notes = sum(one.mark == "note" for one in found)
    after = f"; {many(notes, 'note')}" if notes else ""
    if not problems:
        return f"OK: everything that doit needs is here{after}"
    return f"{many(len(problems), 'problem')}: {', '.join(dict.fromkeys(problems))}{after}"


def _print(found: Finding, stream: TextIO) -> None:
    """Print a finding, wrapped at words in a terminal, with its remedy on lines of its own."""
    mark, plain, colour = _MARKS[found.mark]
    try:
        mark.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        mark = plain
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        mark = f"\x1b[{colour}m{mark}\x1b[0m"
    width = shutil.get_terminal_size().columns if stream.isatty() else 10**6
    indent = " " * (_WIDTH + 4)

    def wrapped(text: str) -> str:
        return textwrap.fill(printable(" ".join(text.split())), max(width, 40), initial_indent=indent,
                             subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)  # fmt: skip

    print(f"{mark} {found.question:<{_WIDTH}}  {wrapped(found.text).lstrip()}", file=stream)
    if found.remedy:
        print(wrapped(f"-> {found.remedy}"), file=stream, flush=True)
