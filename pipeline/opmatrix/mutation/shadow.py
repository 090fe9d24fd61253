"""A shadow of a project: a folder of links in which one file is another one, so that stages run there unchanged.

What a stage writes is in folders of the shadow's own; the build is only read. Two mutants never share a shadow at a
time. Its compiled objects stay, so that the next mutant compiles only the objects that read the changed file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opmatrix.files import write_text
from opmatrix.project.paths import Paths

# Folders and files of build/ that a stage reads and the build has made; and folders of objects, which the shadow keeps.
_READ = ("headers.json", "data", "draw", "export")
_KEPT = ("compile", "sanitize")
_TOP = ("dodo.py", "pyproject.toml", ".venv-matrix")


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """The shadow of the operator `name` in `root`. `own`: what of `_READ` it makes itself instead of reading it."""

    real: Paths
    root: Path
    name: str
    uses: Collection[str] = ()
    own: Collection[str] = ()

    @cached_property
    def paths(self) -> Paths:
        return Paths(self.root)

    @cached_property
    def sanitized(self) -> Paths:
        return Paths(self.root, sanitized=True)

    def make(self) -> None:
        """Make all links anew, and keep the objects and the files of the operator that objects were compiled from."""
        for name in _TOP:
            _link(self.root / name, self.real.root / name)
        build = self.paths.build
        for folder, inside in ((self.real.ops, self.paths.ops), (self.real.native, self.paths.native)):
            self._link_operators(folder, inside)
        self._link_operators(self.real.build / "generated", build / "generated")
        for name in _READ:
            if name in self.own:
                (build / name).mkdir(parents=True, exist_ok=True)
            else:
                _link(build / name, self.real.build / name)
        for kind in _KEPT:
            for other in self.uses:
                _link(build / kind / other, self.real.build / kind / other)

    def write(self, path: str, text: str) -> None:
        """Give the shadow's file `path`, relative to the root, this content. It is written even where it is the
        original: a link would be older than the objects of the mutant before, which ninja would then keep."""
        target = self.root / path
        if target.is_symlink():
            target.unlink()
        write_text(target, text)

    def own_file(self, folder: str, path: Path) -> Path:
        """Return a file of a folder of `_READ` that stages may write, until `make` links the folder again."""
        found = self.paths.build / folder
        if found.is_symlink():
            found.unlink()
        (found / path).parent.mkdir(parents=True, exist_ok=True)
        return found / path

    def clear(self, *folders: str) -> None:
        """Remove what stages wrote for the mutant before."""
        for name in folders:
            shutil.rmtree(self.paths.build / name / self.name, ignore_errors=True)

    def restore(self, path: str) -> None:
        """Let `path` be a link to the real file again."""
        _link(self.root / path, self.real.root / path)

    def _link_operators(self, folder: Path, inside: Path) -> None:
        """Link every operator's folder, of this one each file."""
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name != self.name:
                _link(inside / path.name, path)
                continue
            own = inside / path.name
            own.mkdir(parents=True, exist_ok=True)
            names = {p.name for p in path.iterdir() if p.name != "__pycache__"}
            for left in own.iterdir():
                if left.name not in names and left.name != "__pycache__":
                    left.unlink()
            for name in names:
                if not _is_compiled(own / name):
                    _link(own / name, path / name)


def _is_compiled(path: Path) -> bool:
    """Return whether a file of a shadow is the C++ of the mutant before, of which its objects are: see `write`."""
    return path.is_file() and not path.is_symlink() and path.suffix in (".h", ".cc")


def _link(link: Path, target: Path) -> None:
    """Let `link` point to `target`, whatever was there; without a target remove it."""
    if link.is_symlink() and os.readlink(link) == str(target) and target.exists():
        return
    if link.is_symlink() or link.is_file():
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    if target.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
