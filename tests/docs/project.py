"""Where a page starts: its project, and the environment of its commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from tests.docs.page import PageError

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
VIRTUAL_ENV={sys.prefix} PATH={sys.prefix}/bin:$PATH exec "$@"
"""


def make_project(kind: str, folder: Path, *, root: Path) -> None:
    """Make the project of a page: without operators, or with those of `root` (``seeds``), a copy of `root`
    (``clone``), an empty folder (``installed``), or a copy of a folder of `root`.
    """
    ignored = shutil.ignore_patterns("__pycache__", "build", ".git", ".*_cache", ".venv*", ".tox", "node_modules")
    if kind == "installed":
        return
    if kind in ("", "seeds"):
        shutil.copy(root / "dodo.py", folder)
        # A reader has no outputs of this checkout.
        shipped = re.compile(r"^(?:#.*\n)*\[tool\.opmatrix\.dist\]\n(?:(?!\[).*\n)*", re.MULTILINE)
        (folder / "pyproject.toml").write_text(shipped.sub("", (root / "pyproject.toml").read_text()))
        for room in ("ops", "native") if kind else ():
            shutil.copytree(root / room, folder / room, ignore=ignored)
    elif kind == "clone" or (root / kind).is_dir():
        shutil.copytree(root if kind == "clone" else root / kind, folder, ignore=ignored, dirs_exist_ok=True)
        if kind == "clone":
            (folder / ".venv").symlink_to(sys.prefix)
    else:
        raise PageError(f"project: {kind!r} is none of 'seeds', 'clone', 'installed', and no folder of the repository")
    (folder / "run").write_text(_RUN)
    (folder / "run").chmod(0o755)


def environment(ours: Mapping[str, str], *, kind: str, prefix: Path, home: Path) -> dict[str, str]:
    """Return the variables of a page's commands.

    In a checkout, where most pages start, a command without ./run must fail as it fails for a reader; in a project
    outside a checkout the environment `prefix` is active. `home` has no files, but the user's cache serves all pages.
    """
    kept = {k: v for k, v in ours.items() if k.isidentifier() and not k.startswith(_OURS)}
    path = [p for p in ours.get("PATH", os.defpath).split(os.pathsep) if Path(p) != Path(sys.prefix) / "bin"]
    if kind not in ("", "seeds", "clone"):
        path.insert(0, str(prefix / "bin"))
        kept["VIRTUAL_ENV"] = str(prefix)
    cache = ours.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return kept | {"PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8", "HOME": str(home), "XDG_CACHE_HOME": cache}


def with_wheel(wheel: Path, folder: Path) -> Path:
    """Make an environment in `folder` with a wheel of opmatrix and this environment's packages; return `folder`."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--force-reinstall", "--quiet", str(wheel)], check=True)
    for name in ("doit", "tox"):
        script = (Path(sys.prefix) / "bin" / name).read_text().partition("\n")[2]
        (folder / "bin" / name).write_text(f"#!{python}\n{script}")
        (folder / "bin" / name).chmod(0o755)
    return folder
