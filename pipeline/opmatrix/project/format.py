"""The format of a project: what its files import from opmatrix, and the names that they use.

A project names its format in pyproject.toml, ``[tool.opmatrix] format = 1``. The number rises when opmatrix would
misread or reject the files of older projects; `opmatrix update` then rewrites them. A project that names none has
format 0: its files import the package `pipeline`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import UsageError

FORMAT = 1
UPDATE = "opmatrix update"


def pyproject(root: Path) -> dict[str, Any]:
    """Return what a pyproject.toml contains, nothing where there is none. Raises UsageError if it is no TOML."""
    try:
        return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"pyproject.toml: {error}") from error


def read_format(root: Path) -> int:
    """Return the format of the project in `root`, 0 where it names none. Raises UsageError if it is no number."""
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    if f"[tool.opmatrix]\nformat = {FORMAT}\n" in text:  # as `opmatrix new` writes it; tomllib costs each command 2 ms
        return FORMAT
    found: object = pyproject(root).get("tool", {}).get("opmatrix", {}).get("format", 0)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise UsageError(f"pyproject.toml: [tool.opmatrix]: format: found {found!r}, allowed: a number up to {FORMAT}")
    return found


def check_path(root: Path) -> None:
    """Raise UsageError if build.ninja, the compiler's depfiles or the state cannot contain the path of a project."""
    path = str(root)
    found = next((repr(c) for c in "\n\r|" if c in path), None)
    if not path.isascii() and path.encode(errors="ignore").decode() != path:
        found = "bytes that are not UTF-8"
    if found:
        raise UsageError(
            f"the path of the project contains {found}: {path!a}. Nothing can be built there. Rename the folder"
        )


def check_format(root: Path) -> None:
    """Raise UsageError if the project in `root` has another format than this opmatrix reads, or a path in which
    nothing can be built."""
    check_path(root)
    found = read_format(root)
    if found < FORMAT:
        raise UsageError(
            f"this project has format {found} (pyproject.toml: [tool.opmatrix] format), and the installed opmatrix "
            f"reads format {FORMAT}. Update the project's files with: {UPDATE}"
        )
    if found > FORMAT:
        raise UsageError(
            f"this project has format {found} (pyproject.toml: [tool.opmatrix] format), and the installed opmatrix "
            f"reads format {FORMAT}. Install a newer opmatrix: pip install --upgrade opmatrix"
        )
