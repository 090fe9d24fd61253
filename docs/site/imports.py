"""The rooms of the package and the imports between them, read from source text. It executes and checks out nothing.

A room is a folder at the top of the package, or a module there; in the folder `addons` each folder is one. An import
anywhere in a file counts, also inside a function or for type checking alone: the file depends on the other room.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FOLDER = "pipeline"
ADDONS = "addons"
Arrow = tuple[str, str]  # (importing room, imported room)


@dataclass(frozen=True, kw_only=True)
class Package:
    """The modules of one import package: their text by dotted name, such as ``opmatrix.project.cells``."""

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

    def room(self, module: str) -> str:
        """Return the room of a module: "" for the package itself, such as ``addons.check`` in the folder of addons."""
        parts = module.removeprefix(self.name).removeprefix(".").split(".")
        return ".".join(parts[: 2 if parts[0] == ADDONS else 1])

    @property
    def rooms(self) -> frozenset[str]:
        return frozenset(map(self.room, self.modules)) - {""}

    def loose(self) -> list[str]:
        """Return the rooms that are single modules."""
        return sorted(self.rooms - {self.room(module) for module in self.modules if module.count(".") > 1})

    def arrows(self) -> dict[Arrow, list[str]]:
        """Return the imports between rooms: for each arrow, the lines that make it, ``module imports module``."""
        between: dict[Arrow, list[str]] = {}
        for module, imported in self.module_arrows():
            arrow = self.room(module), self.room(imported)
            if all(arrow) and arrow[0] != arrow[1]:
                between.setdefault(arrow, []).append(f"{module} imports {imported}")
        return between

    def module_arrows(self) -> list[Arrow]:
        """Return the imports between modules: (importing module, imported module)."""
        return [(module, to) for module, text in self.modules.items() for to in sorted(self._imported(text) - {module})]

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


def cycles(arrows: Collection[Arrow]) -> list[tuple[str, ...]]:
    """Return the groups of names in which every one reaches every other, in linear time.

    R. Tarjan, Depth-first search and linear graph algorithms, 1972.
    """
    to: dict[str, list[str]] = {}
    for a, b in arrows:
        to.setdefault(a, []).append(b)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    groups: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        path.append(name)
        for other in to.get(name, ()):
            if other not in order:
                visit(other)
            if other in lowest:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            at = path.index(name)
            if len(group := path[at:]) > 1 or name in to.get(name, ()):
                groups.append(tuple(sorted(group)))
            for done in group:
                del lowest[done]
            del path[at:]

    for name in sorted(to):
        if name not in order:
            visit(name)
    return sorted(groups)


def reduced(arrows: Set[Arrow]) -> set[Arrow]:
    """Return the arrows that no longer path replaces (the transitive reduction). The arrows must have no cycle."""
    closed = reachable(arrows)
    return {(a, b) for a, b in arrows if not any(x == a and (via, b) in closed for x, via in arrows)}


def _dotted(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
