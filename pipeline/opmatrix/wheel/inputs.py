"""The inputs of a wheel, for its steps in `opmatrix.plan` and for `opmatrix.stages.dist`. Imports no jinja2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opmatrix.codegen import generated_files
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_ort_library, has_torch_library
from opmatrix.project.paths import Paths

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))
_PACKAGE = Path(__file__).parents[1]
PROGRAMS = (_PACKAGE / "wheel/use_unpacked.py", _PACKAGE / "ort_checks/cast_edges.py")


def sides(operators: Sequence[Operator]) -> tuple[str, ...]:
    """Return the frameworks that the wheel has a library for: "torch", "ort" or both."""
    has_library = {"torch": has_torch_library, "ort": has_ort_library}
    return tuple(side for side, has in has_library.items() if any(has(o.spec) for o in operators))


def of_operator(paths: Paths, operator: Operator) -> dict[str, Path]:
    """Return the Python files that the wheel copies from an operator, by their names in the wheel."""
    own = {"own_lowering.py": paths.lowering(operator.name), "torch_op.py": paths.torch_op(operator.name)}
    generated = {file: paths.generated(operator.name) / file for file in generated_files.python_files(operator.spec)}
    return {**generated, **{file: path for file, path in own.items() if path.is_file()}}


def sources(paths: Paths, operators: Sequence[Operator]) -> tuple[Path, ...]:
    """Return the handwritten files that operators are built from: their folders and the project's C++ headers."""
    own = (folder for o in operators for folder in (paths.op(o.name), paths.native / o.name))
    folders = (*own, paths.include, paths.binding)
    inside = (folder for folder in folders if folder.is_relative_to(paths.root) and folder.is_dir())
    found = (path for folder in inside for path in folder.rglob("*"))
    return tuple(sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts))
