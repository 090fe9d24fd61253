"""The module of each stage, and the hash of the code that it runs. The hash is part of a step's configuration: changed
code runs its steps again."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from opmatrix.basics import features
from opmatrix.records.step import Fingerprint

PACKAGE = Path(__file__).parents[1]

# In which module the function `run` of each stage is. Strings: a stage is imported only when it runs.
STAGE_MODULES: Mapping[str, str] = {
    "adopt-case": "opmatrix.search.adopt_case",
    "cases": "opmatrix.judge.cases",
    "check-declaration": "opmatrix.declaration.check_declaration",
    "codegen": "opmatrix.codegen.write_code",
    "compare-exports": "opmatrix.export.compare_exports",
    "compat": "opmatrix.torch_checks.compat",
    "compile": "opmatrix.toolchain.compile",
    "data": "opmatrix.data.write_data",
    "dist": "opmatrix.wheel.dist",
    "draw-inputs": "opmatrix.search.draw_inputs",
    "environment": "opmatrix.environments.matrix_env",
    "export": "opmatrix.export.write_models",
    "export-node": "opmatrix.export.write_node_models",
    "link-together": "opmatrix.toolchain.link_together",
    "link-wheel": "opmatrix.wheel.link",
    "operator-pages": "opmatrix.report.operator_pages",
    "ort-fuzz": "opmatrix.ort_checks.fuzz_stage",
    "probe-ort": "opmatrix.ort_checks.probe",
    "probe-torch": "opmatrix.export.probe",
    "publish": "opmatrix.export.publish",
    "races": "opmatrix.ort_checks.races",
    "register": "opmatrix.torch_checks.register",
    "report": "opmatrix.report.write_report",
    "sanitize": "opmatrix.ort_checks.sanitize",
    "save-case": "opmatrix.ort_checks.save_case",
    "tolerances": "opmatrix.ort_checks.tolerances",
    "verify": "opmatrix.ort_checks.verify",
}

# The package imports absolutely, one statement per line (ruff checks this), so this pattern finds every import.
# Walking the ast of the package would take 30 ms in each doit command.
# Not compiled here: each command imports this module, and most of them parse nothing.
_IMPORT = r"(?m)^\s*(?:from (opmatrix[\w.]*) import (\([^)]*\)|[\w, ]+)|import (opmatrix[\w.]*))"


@cache
def modules(stage: str) -> tuple[Path, ...]:
    """Return the files of the package that a stage runs, sorted."""
    return reached(STAGE_MODULES.get(stage) or features.added("stages")[stage])


@cache
def reached(module: str) -> tuple[Path, ...]:
    """Return the files of the package that one of its modules imports, directly or not, itself included, sorted."""
    files: set[Path] = set()
    waiting = [_file(module)]
    while waiting:
        path = waiting.pop()
        if path and path not in files:
            files.add(path)
            waiting += [_file(name) for name in _imports(path)]
    return tuple(sorted(files))


def of_features(*names: str) -> tuple[Path, ...]:
    """Return the files that run where a stage asks the features for what they provide or report under these names."""
    return tuple(dict.fromkeys(path for module in features.modules_of(*names) for path in reached(module)))


@cache
def _imports(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for package, members, plain in re.findall(_IMPORT, path.read_text(encoding="utf-8")):
        names.append(package or plain)
        if (file := _file(names[-1])) and file.name == "__init__.py":  # a name that it imports may be a module
            names += [f"{package}.{name}" for name in re.findall(r"\w+", members)]
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
    content = b"".join(_relative(p).encode() + b"\0" + _digest(p) for p in files)

    def explain() -> str:
        return json.dumps({_relative(p): _digest(p).hex()[:16] for p in files})

    return Fingerprint(hashlib.sha256(content).hexdigest()[:16], explain)


def _relative(path: Path) -> str:
    """Return a path that is the same in a checkout and installed. LICENSE is outside the package in a checkout."""
    return path.relative_to(PACKAGE.parent).as_posix() if path.is_relative_to(PACKAGE) else path.name


def function(path: Path, name: str, *, others: Iterable[str]) -> str:
    """Return a hash of the function `name` of a file and of what it may use there; "" where the file has no such name.

    The hash covers the file without comments and without those functions of `others` that nothing else in it names.
    """
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
        if not {name, "*"} & set(_bound(tree)):
            return ""
        for other in others:
            rest = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == other)]
            if not any(isinstance(n, ast.Name) and n.id == other for node in rest for n in ast.walk(node)):
                tree.body = rest
        text = ast.dump(tree).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # running the file reports it
        pass
    return hashlib.sha256(text).hexdigest()[:16]


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module binds, "*" for those of a star import."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias():
                yield node.asname or node.name
