"""The code of a stage, as something that its results depend on."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from opmatrix.step import Fingerprint

PACKAGE = Path(__file__).parent

# The house imports absolutely and one statement a line (ruff holds this), so that a pattern finds every import:
# an ast walk over the package costs 30 ms, which each doit command would pay.
_IMPORT = re.compile(r"^\s*(?:from (opmatrix[\w.]*) import ([\w, ]+|\()|import (opmatrix[\w.]*))", re.MULTILINE)


@cache
def modules(stage: str) -> tuple[Path, ...]:
    """Return the files of the package that the module ``opmatrix.stages.<stage>`` runs, itself included, sorted."""
    return reached(f"opmatrix.stages.{stage.replace('-', '_')}")


@cache
def reached(module: str) -> tuple[Path, ...]:
    """Return the files of the package that a module of it imports, directly or not, itself included, sorted."""
    found: set[Path] = set()
    waiting = [_file(module)]
    while waiting:
        path = waiting.pop()
        if path and path not in found:
            found.add(path)
            waiting += [_file(name) for name in _imports(path)]
    return tuple(sorted(found))


@cache
def _imports(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for package, members, plain in _IMPORT.findall(path.read_text()):
        names += [package or plain, *(f"{package}.{m.strip().split(' ')[0]}" for m in members.split(",") if package)]
    return tuple(names)


@cache
def _file(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


@cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def digest(stage: str, *further: Path) -> Fingerprint:
    """Return a fingerprint of the code of a stage and of `further` files, such as its templates."""
    files = (*modules(stage), *sorted(further))
    named = b"".join(_shown(p).encode() + b"\0" + _digest(p) for p in files)

    def explain() -> str:
        return json.dumps({_shown(p): _digest(p).hex()[:16] for p in files})

    return Fingerprint(hashlib.sha256(named).hexdigest()[:16], explain)


def _shown(path: Path) -> str:
    """Return the path below the package, the same in a checkout and installed; LICENSE is beside it in a checkout."""
    return path.relative_to(PACKAGE.parent).as_posix() if path.is_relative_to(PACKAGE) else path.name


def function(path: Path, name: str, *, others: Iterable[str]) -> str:
    """Return a fingerprint of the function `name` of a file and of all that it may use there, "" without one.

    That is the file without comments, and without those of the functions `others` that nothing else in it names.
    """
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
    except SyntaxError:  # whoever runs it will say so
        return hashlib.sha256(text).hexdigest()[:16]
    if not {name, "*"} & set(_bound(tree)):
        return ""
    for other in others:
        rest = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == other)]
        if not any(isinstance(n, ast.Name) and n.id == other for node in rest for n in ast.walk(node)):
            tree.body = rest
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield every name that anything in a module is bound to, "*" for names that are not told."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias():
                yield node.asname or node.name
