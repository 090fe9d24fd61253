"""Write the files of a new operator: all of them or none, and over nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from opmatrix.declaration.load import Operator, clashes, load_operator, operator_names
from opmatrix.errors import SpecError, UsageError
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec

# By a file's suffix: the program that lays it out as the project's own settings have it, and how it is given a text.
_FORMATTERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("ruff", "format", "--no-cache", "--stdin-filename"),
    ".h": ("clang-format", "--fallback-style=none", "--assume-filename"),
}


def refuse_what_is_there(layout: Paths, specs: Iterable[OpSpec]) -> None:
    """Raise UsageError for each folder that is there already, and for each name that an operator has already."""
    specs = list(specs)
    found = []
    for spec in specs:
        folders = (layout.op(spec.name), layout.kernel(spec.name).parent)
        there = [f"{f.relative_to(layout.root)}/{_content(f)}" for f in folders if f.exists() or f.is_symlink()]
        found += [
            f"{one}: there already, and nothing is overwritten. Remove it, or choose another --name" for one in there
        ]
    new = [Operator(spec=spec, models=()) for spec in specs]
    names = {s.name for s in specs}
    found += clashes([*(o for o in known(layout) if o.name not in names), *new])
    if found:
        raise UsageError("\n".join([*found, "Nothing was written."]))


def _content(folder: Path) -> str:
    """Return what a folder holds, to be named behind its path."""
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
    return "{" + ", ".join(names) + "}" if len(names) > 1 else "".join(names)


def known(layout: Paths) -> Iterator[Operator]:
    """Yield the operators that can be read; doit reports the mistakes of the others, and they prevent no new one."""
    for name in operator_names(layout):
        with suppress(SpecError):
            yield load_operator(layout, name)


def formatted(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return `files`, by their path below `root`, as ruff and clang-format write them.

    A text stays as it is where its formatter is not installed, or fails: neither is needed.
    """
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


def write(layout: Paths, files: Mapping[str, str]) -> None:
    """Write `files`, by their path below the root, in folders that are not there yet: all of them or none.

    They are written aside, then each folder is renamed. Those of ops/ come last: only then is there an operator.
    """
    aside = Path(tempfile.mkdtemp(prefix=".new-operator-", dir=layout.root))
    folders = sorted({Path(path).parent for path in files}, key=lambda f: (f.parts[0] == "ops", f))
    made: list[Path] = []
    try:
        for path, text in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text, encoding="utf-8")
        for folder in folders:
            target = layout.root / folder
            if not target.parent.exists():
                target.parent.mkdir()
                made.append(target.parent)
            if target.exists():
                raise UsageError(f"{folder}/: somebody else made it just now. Nothing was written.")
            (aside / folder).rename(target)
            made.append(target)
    except BaseException:  # Ctrl-C as well: half an operator would be one with mistakes
        for folder in reversed(made):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
