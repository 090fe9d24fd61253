"""The modules of opmatrix that a wheel needs at run time: copied to `_opmatrix` in it, their imports rewritten.

Also the commit of a project, and whether files differ from it. It is read from git's own files (format:
gitrepository-layout(5)), because every doit command needs it and starting git takes too long; only `dirty` runs git.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from opmatrix.basics.errors import DistError
from opmatrix.project.paths import shipped
from opmatrix.records import code_hash


def commit(root: Path) -> str | None:
    """Return the commit of HEAD, or None outside a git checkout and before the first commit."""
    folder = next((f / ".git" for f in (root, *root.parents) if (f / ".git").exists()), None)
    if folder is None:
        return None
    if folder.is_file():  # a worktree or a submodule: the file holds the path of the folder
        folder = (folder.parent / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()).resolve()
    head = _text(folder / "HEAD")
    if head is None or not head.startswith("ref: "):
        return head
    reference = head.removeprefix("ref: ")
    common = (folder / (_text(folder / "commondir") or ".")).resolve()
    for parent in (folder, common):
        if commit_id := _text(parent / reference):
            return commit_id
    packed = (line.split(" ") for line in (_text(common / "packed-refs") or "").splitlines())
    return next((line[0] for line in packed if line[1:] == [reference]), None)


def dirty(root: Path, paths: Sequence[Path]) -> bool | None:
    """Return whether any of `paths` is changed or untracked; None if git is missing or fails."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--ignored", "--", *map(str, paths)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    return bool(done.stdout.strip()) if done.returncode == 0 else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


PACKAGE = "_opmatrix"
ENTRIES = ("opmatrix.wheel.runtime.register", "opmatrix.wheel.runtime.export")
LICENSE = shipped("LICENSE")
POLICY = Path(__file__).with_name("manylinux.json")  # for `contents`, which imports Jinja2, and for the plan
_IMPORT = re.compile(r"^(\s*(?:from|import) )(opmatrix)\b", re.MULTILINE)


def sources() -> tuple[Path, ...]:
    """Return the modules to copy: all that `ENTRIES` import, directly or not, without `__init__.py`."""
    found = {path for entry in ENTRIES for path in code_hash.reached(entry)}
    return tuple(sorted(path for path in found if path.name != "__init__.py"))


def vendored_source(package: str, *, version: str) -> dict[str, str]:
    """Return the files of `_opmatrix` by their paths below `package`, with an `__init__.py` in each folder."""
    head = f"# Of opmatrix {version}, which is under the Apache License 2.0: see LICENSE in this folder.\n"
    copied = {
        path.relative_to(code_hash.PACKAGE): rewrite_imports(path.read_text(encoding="utf-8"), package)
        for path in sources()
    }
    folders = {parent for path in copied for parent in path.parents}
    made = {folder / "__init__.py": f'"""Of opmatrix {version}."""\n' for folder in folders}
    return {f"{PACKAGE}/{path.as_posix()}": head + text for path, text in sorted({**copied, **made}.items())} | {
        f"{PACKAGE}/LICENSE": LICENSE.read_text(encoding="utf-8")
    }


def rewrite_imports(text: str, package: str) -> str:
    """Return Python source with its imports of opmatrix rewritten to those of the wheel."""
    return _IMPORT.sub(rf"\1{package}.{PACKAGE}", text)


def rewrite_handwritten(text: str, package: str, *, shown: str, vendored: Mapping[str, object]) -> str:
    """Return the source of a handwritten file with its imports rewritten.

    Raises DistError if it imports a module of opmatrix or of ops/ that is not in `vendored`.
    """
    for module in re.findall(r"^\s*(?:from|import) ((?:opmatrix|ops)\b[\w.]*)", text, re.MULTILINE):
        path = f"{PACKAGE}/{module.removeprefix('opmatrix').strip('.').replace('.', '/')}.py"
        if path not in vendored:
            raise DistError(f"{shown} imports {module}, which no wheel has: it must work by itself there")
    return rewrite_imports(text, package)
