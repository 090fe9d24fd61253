"""Where a page starts: its project, and the environment of its commands."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.docs.page import PageError

_BIN = Path(sys.prefix) / "bin"
# Variables that the caller of the tests may set, and that would change what a page sees.
_OURS = (
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "COLUMNS",
    "LC_",
    "VIRTUAL_ENV",
    "PYTEST_",
    "PYTHON",
    "TOX_",
    "OPMATRIX_",
)
_RUN = f"""\
#!/bin/sh
# Stands in for the ./run of a checkout: enters the environment that the tests run in.
VIRTUAL_ENV={sys.prefix} PATH={_BIN}:$PATH exec "$@"
"""


def make_project(kind: str, folder: Path, *, root: Path) -> None:
    """Make the project of a page: without operators, or with those of `root` (``seeds``), an empty folder
    (``installed``), or a copy of a folder of `root`.
    """
    ignored = shutil.ignore_patterns("__pycache__", "build", ".venv*", ".tox", "node_modules")
    if kind == "installed":
        return
    if kind in ("", "seeds"):
        shutil.copy(root / "dodo.py", folder)
        # A reader has no outputs of this checkout.
        shipped = re.compile(r"^(?:#.*\n)*\[tool\.opmatrix\.dist\]\n(?:(?!\[).*\n)*", re.MULTILINE)
        (folder / "pyproject.toml").write_text(shipped.sub("", (root / "pyproject.toml").read_text()))
        for room in ("ops", "native") if kind else ():
            shutil.copytree(root / room, folder / room, ignore=ignored)
    elif (root / kind).is_dir():
        shutil.copytree(root / kind, folder, ignore=ignored, dirs_exist_ok=True)
    else:
        raise PageError(f"project: {kind!r} is neither 'seeds' nor 'installed' nor a folder of the repository")
    (folder / "run").write_text(_RUN)
    (folder / "run").chmod(0o755)


def environment(ours: Mapping[str, str], *, kind: str) -> dict[str, str]:
    """Return the variables of a page's commands.

    In a checkout, where most pages start, a command without ./run must fail as it fails for a reader; in a project
    outside a checkout the environment is active.
    """
    kept = {k: v for k, v in ours.items() if k.isidentifier() and not k.startswith(_OURS)}
    path = [p for p in ours.get("PATH", os.defpath).split(os.pathsep) if Path(p) != _BIN]
    if kind not in ("", "seeds"):
        path.insert(0, str(_BIN))
        kept["VIRTUAL_ENV"] = sys.prefix
    return kept | {"PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8"}
