"""Generate code from a declaration: bindings in C++, and Python modules for torch, ONNX and the exporters."""

from __future__ import annotations

from opmatrix.basics.files import write_text
from opmatrix.codegen import bindings, python_modules
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths


def run(paths: Paths, operator: Operator) -> None:
    """Write the files under `paths.generated(name)` whose content differs, and remove others."""
    folder, spec, written = paths.generated(operator.name), operator.spec, operator.handwritten_files
    files = bindings.render(spec, written) | python_modules.render(spec, written)
    for name, text in files.items():
        write_text(folder / name, text)
    for surplus in (p for p in folder.iterdir() if p.is_file() and p.name not in files):
        surplus.unlink()
