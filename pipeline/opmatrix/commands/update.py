"""`opmatrix update`: rewrite the files of a project for the format that this opmatrix reads. A doit command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import OpmatrixError, UsageError
from opmatrix.basics.files import write_text
from opmatrix.commands.base import CommandBase, option
from opmatrix.project.settings import FORMAT, find_root, read_format

# Format 1: the package `pipeline` became `opmatrix`. These are the modules that a project imports.
_MODULES = {
    "spec": "spec",
    "lowering.graph": "lowering.graph",
    "runner.dodo": "commands.dodo",
    "tox_cells": "environments.tox_plugin",
}
# Stages, and the task groups of their names, that have another name since format 1.
_STAGES = {
    "adopt": "adopt-case",
    "agree": "compare-exports",
    "combine": "link-together",
    "draw": "draw-inputs",
    "fuzz": "ort-fuzz",
    "glue": "codegen",
    "link": "link-wheel",
    "node": "export-node",
    "reference": "operator-pages",
}
_IMPORT = re.compile(rf"^(\s*(?:from|import) )pipeline\.({'|'.join(map(re.escape, _MODULES))})\b", re.MULTILINE)
# Names that changed with it: the memory layout of a tensor in cases.py, and how a lowering says that it has no nodes.
_USES_LAYOUT = re.compile(r"^from pipeline\.spec import (?:[^\n(]*|\([^)]*)\bLayout\b", re.MULTILINE)
_LOWERING = re.compile(r"^def (?:custom|decomposed)\(g\b", re.MULTILINE)
_STAGE = re.compile(rf"(python3? -m) pipeline\b(?:( )({'|'.join(_STAGES)})\b(?!-))?")
_TASK = re.compile(rf"(\bdoit(?: -\w+(?: \d+)?)* '?)({'|'.join(_STAGES)})(?=[:\s'`]|$)", re.MULTILINE)
_LEFT = re.compile(r"^\s*(?:from|import) pipeline\b.*|.*-m pipeline\b.*", re.MULTILINE)

# Files that name modules, stages or tasks. Hidden folders are left out but for workflows.
_SUFFIXES = {".py", ".toml", ".ini", ".cfg", ".md", ".yml", ".yaml", ".sh"}
_LEFT_OUT = {"build", "dist", "node_modules"}


class UpdateError(OpmatrixError):
    """A project holds what `opmatrix update` cannot rewrite."""

    exit_code = 1


class Update(CommandBase):
    """No tasks are loaded: the dodo.py of an older format cannot be executed."""

    name = "update"
    doc_purpose = "rewrite the files of a project for the format that this opmatrix reads"
    doc_usage = "[--dry-run]"
    doc_description = (
        "A project names its format in pyproject.toml, [tool.opmatrix] format. After an update of opmatrix that reads "
        "a newer one, this command rewrites imports and names in the project's files and raises the number. Exit "
        "codes: 0 updated or up to date, 1 a file is to be changed by hand first, 2 usage error."
    )
    cmd_options = (option("dry_run", "print the files that would change, and write none", False),)

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if args:
            raise UsageError(f"doit update: found {' '.join(args)!r}, allowed: options alone")
        root = find_root(Path.cwd())
        before = read_format(root)
        if before >= FORMAT:
            print(f"format {before}: up to date")
            return 0
        texts = dict(_texts(root))
        after = {path: update_text(text, python=path.suffix == ".py") for path, text in texts.items()}
        if (settings := root / "pyproject.toml") in after:
            after[settings] = _with_format(after[settings])
        left = [
            f"{path.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}: {found[0].strip()}"
            for path, text in after.items()
            for found in _LEFT.finditer(text)
        ]
        if left:
            raise UpdateError("nothing was changed: opmatrix has no such module for projects. Change by hand, then run "
                              "this again:\n" + "\n".join(left))  # fmt: skip
        dry = params["dry_run"]
        for path in (path for path, text in after.items() if text != texts[path]):
            if not dry:
                write_text(path, after[path])
            print(f"{'would update' if dry else 'updated'} {path.relative_to(root)}")
        if not dry:
            print(f"format {before} -> {FORMAT}")
        return 0


def update_text(text: str, *, python: bool) -> str:
    """Return a file of format 0 as format 1 has it.

    Example:
        >>> update_text("from pipeline.spec import Layout, Model", python=True)
        'from opmatrix.spec import MemoryLayout, Model'
        >>> update_text("./run doit 'glue:*' && python -m pipeline sdk", python=False)
        "./run doit 'codegen:*' && python -m opmatrix headers"
    """
    if python and _USES_LAYOUT.search(text):
        text = re.sub(r"(?<![\w.])Layout\b", "MemoryLayout", text)
    if python and _LOWERING.search(text):
        text = re.sub(r"\bg\.refuse\(", "g.unsupported(", text)
    text = _IMPORT.sub(lambda match: f"{match[1]}opmatrix.{_MODULES[match[2]]}", text)
    text = _STAGE.sub(lambda match: f"{match[1]} opmatrix" + (f" {_STAGES[match[3]]}" if match[3] else ""), text)
    return _TASK.sub(lambda match: match[1] + _STAGES[match[2]], text)


def _with_format(text: str) -> str:
    """Return pyproject.toml with ``format = 1`` under [tool.opmatrix]."""
    line = f"format = {FORMAT}\n"
    if re.search(r"^\[tool\.opmatrix\]\s*$", text, re.MULTILINE):
        return re.sub(r"^(\[tool\.opmatrix\]\s*?\n)(?:format = \d+\n)?", rf"\g<1>{line}", text, flags=re.MULTILINE)
    if table := re.search(r"^(?:#[^\n]*\n)*\[tool\.opmatrix\.", text, re.MULTILINE):
        return f"{text[: table.start()]}[tool.opmatrix]\n{line}\n{text[table.start() :]}"
    return f"{text.rstrip()}\n\n[tool.opmatrix]\n{line}"


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that a project's owner writes, sorted, with their text. One that is not UTF-8 was written neither
    by opmatrix nor for Python."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in _LEFT_OUT and (f[0] != "." or f == ".github"))
        for path in (Path(folder, name) for name in sorted(names)):
            with suppress(UnicodeDecodeError):
                if path.suffix in _SUFFIXES:
                    yield path, path.read_text(encoding="utf-8")
