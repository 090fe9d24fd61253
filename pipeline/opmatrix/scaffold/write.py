"""Format and write the files of new operators. All are written or none, and none is overwritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import Operator, clashes
from opmatrix.errors import UsageError
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec

# By suffix, the command that formats a file from stdin with the project's settings; the file's path is appended.
_FORMATTERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("ruff", "format", "--no-cache", "--stdin-filename"),
    ".h": ("clang-format", "--fallback-style=none", "--assume-filename"),
}


def require_absent(paths: Paths, specs: Iterable[OpSpec]) -> None:
    """Raise UsageError with each folder that exists and each name that another operator has."""
    specs = list(specs)
    found = []
    for spec in specs:
        folders = (paths.op(spec.name), paths.kernel(spec.name).parent)
        there = [f"{f.relative_to(paths.root)}/{_content(f)}" for f in folders if f.exists() or f.is_symlink()]
        found += [
            f"{one}: there already, and nothing is overwritten. Remove it, or choose another --name" for one in there
        ]
    new = [Operator(spec=spec, models=()) for spec in specs]
    names = {s.name for s in specs}
    found += [line for _, line in clashes([*(o for o in loadable_operators(paths) if o.name not in names), *new])]
    if found:
        raise UsageError("\n".join([*found, "Nothing was written."]))


def _content(folder: Path) -> str:
    """Return the names in a folder, to be shown after its path."""
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
    return "{" + ", ".join(names) + "}" if len(names) > 1 else "".join(names)


def loadable_operators(paths: Paths) -> tuple[Operator, ...]:
    """Return the operators that can be used. doit reports the others, and they do not prevent a new operator."""
    return read_operators(paths).operators


def formatted(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return `files` by path, formatted where ruff or clang-format is there and works: neither is required."""
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = dict(files)
    for path, text in files.items():
        program, *options = _FORMATTERS.get(Path(path).suffix, ("",))
        if program and (installed := shutil.which(program, path=programs)):
            command = [installed, *options, str(root / path)]
            with suppress(OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
                done = subprocess.run(command, cwd=root, input=text, capture_output=True, encoding="utf-8", timeout=60)
                found[path] = done.stdout if done.returncode == 0 and done.stdout else text
    return found


def write(paths: Paths, files: Mapping[str, str]) -> None:
    """Write `files` to new folders, all or none, via a temporary one; ops/ last, since it declares operators."""
    temporary = Path(tempfile.mkdtemp(prefix=".new-operator-", dir=paths.root))
    folders = sorted({Path(path).parent for path in files}, key=lambda f: (f.parts[0] == "ops", f))
    made: list[Path] = []
    try:
        for path, text in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_text(text, encoding="utf-8")
        for folder in folders:
            target = paths.root / folder
            if not target.parent.exists():
                target.parent.mkdir()
                made.append(target.parent)
            if target.exists():
                raise UsageError(f"{folder}/: another process created it just now. Nothing was written.")
            (temporary / folder).rename(target)
            made.append(target)
    except BaseException:  # Ctrl-C too: a partial operator would be invalid
        for folder in reversed(made):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
