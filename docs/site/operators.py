"""The page of the operators that tests build, and of how many faults are planted in each."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from docs.site.gates import HEAD
from opmatrix.declaration.load import load_operators
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import torch_schema
from opmatrix.spec import OpSpec

_HEAD = """# Operators of the tests

Each project in `tests/projects` has operators that the examples of the docs do not: its tests build them whole, and
[faults](gates.md) are planted in copies of them. "C++" is a kernel.h, "own torch.cc" and "own ort.cc" are handwritten
bindings, "Python" is a kernel in torch_op.py.

| project | operator | what it computes | schema in torch | kernel | lowerings | faults |
|---|---|---|---|---|---|---|
"""


def render(tests: Path) -> str:
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(tests))


def _rows(tests: Path) -> Iterator[tuple[str, ...]]:
    faults = Counter(_faults(tests / "faults"))
    for folder in sorted(path for path in (tests / "projects").iterdir() if (path / "ops").is_dir()):
        paths = Paths(folder)
        for operator in load_operators(paths):
            spec = operator.spec
            schema = f"`{_schema(spec)}`" if spec.torch else "-"
            planted = str(faults[folder.name, spec.name] or "-")
            yield folder.name, spec.name, spec.summary, schema, _kernel(paths, spec), ", ".join(spec.lowerings), planted


def _faults(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.glob("*.toml"):
        data = tomllib.loads(path.read_text())
        for name, tables in data.items():
            if name not in HEAD:
                yield data.get("project", ""), (data | tables[0]).get("op", "")


def _schema(spec: OpSpec) -> str:
    assert spec.torch
    return (spec.torch.schema or torch_schema(spec)).replace("|", "\\|")


def _kernel(paths: Paths, spec: OpSpec) -> str:
    names = {path.name for path in (paths.native / spec.name).glob("*")}
    has = {"kernel.h": "C++", "torch.cc": "own torch.cc", "ort.cc": "own ort.cc"}
    kernels = [shown for name, shown in has.items() if name in names]
    if spec.torch and spec.torch.python:
        kernels.append("Python")
    return ", ".join(kernels) or "-"
