"""Write what follows from a declaration: bindings in C++, and what torch, ONNX and the exporters need in Python."""

from __future__ import annotations

from opmatrix.codegen import cpp_bindings, python_modules
from opmatrix.declaration.load import Operator
from opmatrix.files import write_text
from opmatrix.project.paths import Paths


def run(layout: Paths, operator: Operator) -> None:
    """Write the files under `layout.generated(name)` whose text differs, and remove those that nothing renders now."""
    folder = layout.generated(operator.name)
    files = cpp_bindings.render(operator.spec, operator.handwritten_files) | python_modules.render(
        operator.spec, operator.handwritten_files
    )
    for name, text in files.items():
        write_text(folder / name, text)
    for surplus in (p for p in folder.iterdir() if p.is_file() and p.name not in files):
        surplus.unlink()
