"""The rooms of the package and the imports between them, read from source text. It executes and checks out nothing.

A room is a folder at the top of the package, or a module there. An import anywhere in a file counts, also inside a
function or for type checking alone: the file depends on the other room.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FOLDER = "pipeline"
Arrow = tuple[str, str]  # (importing room, imported room)


@dataclass(frozen=True, kw_only=True)
class Package:
    """The modules of one import package: their text by dotted name, such as ``opmatrix.matrix.cells``."""

    name: str
    modules: Mapping[str, str]

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Package:
        """Return the package in `files`, the text of Python files by their path in the repository.

        It is ``opmatrix`` where pipeline/opmatrix/ exists; until 2026-11, pipeline/ itself was the package.
        """
        inner = f"{FOLDER}/opmatrix/"
        parent = FOLDER if any(path.startswith(inner) for path in files) else "."
        modules = {_dotted(PurePosixPath(path).relative_to(parent)): text for path, text in files.items()}
        return cls(name=FOLDER if parent == "." else "opmatrix", modules=modules)

    @classmethod
    def in_folder(cls, root: Path) -> Package:
        """Return the package of a working tree."""
        paths = sorted((root / FOLDER).rglob("*.py"))
        return cls.of({path.relative_to(root).as_posix(): path.read_text() for path in paths})

    @classmethod
    def at_revision(cls, root: Path, revision: str) -> Package:
        """Return the package at a git revision. Raises subprocess.CalledProcessError for an unknown revision."""
        command = ["git", "-C", str(root), "archive", "--format=tar", revision, FOLDER]
        packed = subprocess.run(command, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            members = [m for m in archive if m.isfile() and m.name.endswith(".py")]
            read = {m.name: file.read().decode() for m in members if (file := archive.extractfile(m))}
        return cls.of(read)

    def room(self, module: str) -> str:
        """Return the room of a module: "" for the package itself."""
        return module.removeprefix(self.name).removeprefix(".").partition(".")[0]

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset(map(self.room, self.modules)) - {""}

    def loose(self) -> list[str]:
        """Return the rooms that are single modules."""
        return sorted(self.rooms - {self.room(module) for module in self.modules if module.count(".") > 1})

    def arrows(self) -> dict[Arrow, list[str]]:
        """Return the imports between rooms: for each arrow, the lines that make it, ``module imports module``."""
        found: dict[Arrow, list[str]] = {}
        for module, text in self.modules.items():
            for imported in sorted(self._imported(text)):
                arrow = self.room(module), self.room(imported)
                if all(arrow) and arrow[0] != arrow[1]:
                    found.setdefault(arrow, []).append(f"{module} imports {imported}")
        return found

    def _imported(self, text: str) -> set[str]:
        """Return the modules of this package that a file imports."""
        found = {self._module(name) for name in imports(text)}
        return {name for name in found if name}

    def _module(self, name: str) -> str:
        """Return the module that a dotted name is, or is in: ``opmatrix.spec`` for ``opmatrix.spec.OpSpec``."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name


def imports(text: str) -> Iterator[str]:
    """Yield the dotted names that the text of a Python file imports, also inside functions.

    ``from package import name`` yields both the package and ``package.name``, which may be a module.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


def reachable(arrows: Set[Arrow]) -> set[Arrow]:
    """Return the transitive closure: every (a, b) such that some path leads from a to b."""
    found = set(arrows)
    for middle in {a for a, _ in arrows} & {b for _, b in arrows}:
        found |= {(a, b) for a, via in found if via == middle for to, b in found if to == middle}
    return found


def cycles(arrows: Set[Arrow]) -> list[tuple[str, ...]]:
    """Return the groups of rooms in which every room reaches every other."""
    closed = reachable(arrows)
    groups = {tuple(sorted({a} | {b for x, b in closed if x == a and (b, a) in closed})) for a, c in closed if a == c}
    return sorted(groups)


def reduced(arrows: Set[Arrow]) -> set[Arrow]:
    """Return the arrows that no longer path replaces (the transitive reduction). The arrows must have no cycle."""
    closed = reachable(arrows)
    return {(a, b) for a, b in arrows if not any(x == a and (via, b) in closed for x, via in arrows)}


def _dotted(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
