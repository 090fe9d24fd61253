"""Write a Markdown page about the project's operators."""

from __future__ import annotations

import os
from pathlib import Path

from opmatrix.declaration.load import load_operators
from opmatrix.files import write_text
from opmatrix.operator_pages import operators
from opmatrix.project.paths import Paths


def run(layout: Paths, *, into: Path | None = None) -> None:
    """Write operators.md into build/reference/, or into `into`."""
    found = load_operators(layout)
    paths = {operator.name: layout.op(operator.name) / "README.md" for operator in found}
    readmes = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.is_file()}
    page = (into or layout.reference_pages) / "operators.md"
    ops = os.path.relpath(layout.ops, page.parent)
    write_text(page, operators.render(found, readmes, ops=ops))
    print(os.path.relpath(page))
