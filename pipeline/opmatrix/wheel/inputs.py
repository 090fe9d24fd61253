"""What a wheel is made of, for whoever plans or reads it. Imports no template library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opmatrix.codegen import generated_files
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_ort_library, has_torch_library
from opmatrix.project.paths import Paths

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))


def sides(operators: Sequence[Operator]) -> tuple[str, ...]:
    """Return which libraries there are: those of "torch" and "ort"."""
    torch = any(has_torch_library(o.spec) for o in operators)
    ort = any(has_ort_library(o.spec) for o in operators)
    return (*(["torch"] if torch else []), *(["ort"] if ort else []))


def of_operator(layout: Paths, operator: Operator) -> dict[str, Path]:
    """Return the files that a wheel takes from an operator: what it calls them, and where they are."""
    own = {"own_lowering.py": layout.lowering(operator.name), "torch_op.py": layout.torch_op(operator.name)}
    generated = {file: layout.generated(operator.name) / file for file in generated_files.python_files(operator.spec)}
    return {**generated, **{file: path for file, path in own.items() if path.is_file()}}


def sources(layout: Paths, operator: Operator) -> tuple[Path, ...]:
    """Return the files that people write of an operator and that make it: its folders, and headers of the project."""
    folders = (layout.op(operator.name), layout.native / operator.name, layout.include, layout.binding)
    ours = (folder for folder in folders if folder.is_relative_to(layout.root) and folder.is_dir())
    found = (path for folder in ours for path in folder.rglob("*"))
    return tuple(sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts))
