"""The commit of a project, and whether files differ from it.

The commit is read from git's own files (format: gitrepository-layout(5)), because every doit command needs it and
starting git takes too long. Only `dirty`, when a wheel is built, runs git.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


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
        if found := _text(parent / reference):
            return found
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
