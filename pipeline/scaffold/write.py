"""Write the files of a new operator: all of them or none, and over nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.errors import SpecError, UsageError
from pipeline.layout import Layout
from pipeline.load import Operator, clashes, load_operator, operator_names
from pipeline.spec import OpSpec


def refuse_what_is_there(layout: Layout, specs: Iterable[OpSpec]) -> None:
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
    found += clashes([*_known(layout, {s.name for s in specs}), *new])
    if found:
        raise UsageError("\n".join([*found, "Nothing was written."]))


def _content(folder: Path) -> str:
    """Return what a folder holds, to be named behind its path."""
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
    return "{" + ", ".join(names) + "}" if len(names) > 1 else "".join(names)


def _known(layout: Layout, new: set[str]) -> list[Operator]:
    """Return the operators that can be read; one with a mistake is doit's to report, and keeps nobody from another."""
    found = []
    for name in operator_names(layout):
        try:
            found += [load_operator(layout, name)] if name not in new else []
        except SpecError:
            continue
    return found


def write(layout: Layout, files: Mapping[str, str]) -> None:
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
            for parent in (p for p in (target.parent,) if not p.exists()):
                parent.mkdir()
                made.append(parent)
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
