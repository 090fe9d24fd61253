"""A shadow of a project: a folder of links in which one file is another one, so that stages run there unchanged.

What a stage writes is in folders of the shadow's own; the build is only read. Two mutants never share a shadow at a
time.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opmatrix.basics.files import remove, write_text
from opmatrix.project.paths import Paths

COMPILED = ("compile", "sanitize", "generated")
"""The folders of build/ that a shadow for mutants of a kernel has of its own. Its objects stay, so that the next mutant
compiles only the objects that read the changed file."""
_TOP = ("dodo.py", "pyproject.toml", ".venv-matrix")
_READ = ("compile", "generated", "data", "draw", "export")


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """The shadow of the operator `name` in `root`. `own`: the folders of build/ that its stages write, of which it has
    only this operator; it reads the others from the build. `exported`: the lowerings whose models it reads although
    `own` has "export". `uses`: the operators whose objects it links."""

    real: Paths
    root: Path
    name: str
    own: Collection[str]
    exported: Collection[str] = ()
    uses: Collection[str] = ()

    @cached_property
    def paths(self) -> Paths:
        return Paths(self.root)

    def make(self) -> None:
        """Make all links."""
        build = self.paths.build
        for name in _TOP:
            _link(self.root / name, self.real.root / name)
        self._link_files(self.real.ops, self.paths.ops)
        self._link_files(self.real.native, self.paths.native)
        for name in _READ:
            if name not in self.own:
                _link(build / name, self.real.build / name)
        for lowering in self.exported:
            _link(build / "export" / self.name / lowering, self.real.build / "export" / self.name / lowering)
        if "generated" in self.own:
            self._link_files(self.real.build / "generated", build / "generated")
        for kind in {"compile", "sanitize"}.intersection(self.own):
            for other in self.uses:
                _link(build / kind / other, self.real.build / kind / other)

    def make_anew(self) -> None:
        """Remove what stages wrote, and make all links."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.make()

    def write(self, path: str, text: str) -> None:
        """Give the file `path`, relative to the root, this content, also where it is the original one: a link would be
        older than the objects of the mutant before, which ninja would keep."""
        target = self.root / path
        for other in self._compiled_files():
            if other != target:  # of another mutant
                original = self.real.root / other.relative_to(self.root)
                if original.is_file():
                    write_text(other, original.read_text(encoding="utf-8"))
                else:
                    other.unlink()
        if target.is_symlink():
            target.unlink()
        write_text(target, text)

    def _compiled_files(self) -> list[Path]:
        folders = (self.paths.kernel(self.name).parent, self.paths.generated(self.name))
        return [path for folder in folders if folder.is_dir() for path in folder.iterdir() if _is_compiled(path)]

    def _link_files(self, folder: Path, inside: Path) -> None:
        """Link the folder of every other operator, and of this one each file."""
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name != self.name:
                _link(inside / path.name, path)
                continue
            own = inside / path.name
            own.mkdir(parents=True, exist_ok=True)
            names = {p.name for p in path.iterdir() if p.name != "__pycache__"}
            for left in own.iterdir():
                if left.name not in names and (left.is_symlink() or _is_compiled(left)):
                    left.unlink()
            for name in names:
                if not _is_compiled(own / name):
                    _link(own / name, path / name)


def _is_compiled(path: Path) -> bool:
    """Return whether a file of a shadow is the C++ of the mutant before, of which its objects are: see `write`."""
    return path.is_file() and not path.is_symlink() and path.suffix in (".h", ".cc")


def _link(link: Path, target: Path) -> None:
    """Let `link` point to `target`, whatever was there; where there is no target, remove it."""
    if link.is_symlink() and link.readlink() == target and target.exists():
        return
    remove(link)
    if target.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
