"""Add a case that the property test found to cases.py; then it is exported and verified like the others."""

from __future__ import annotations

from opmatrix.declaration.insert_case import insert_into_models
from opmatrix.declaration.load import Operator
from opmatrix.errors import UsageError
from opmatrix.files import write_text
from opmatrix.project.paths import Paths


def run(layout: Paths, operator: Operator, *, case: str) -> None:
    """Add `case` to MODELS. Raises UsageError where it was not found or exists already."""
    path, cases = layout.failing_case(operator.name, case), layout.cases(operator.name)
    shown = cases.relative_to(layout.root)
    if any(c.name == case for m in operator.models for c in m.cases):
        raise UsageError(f"{shown} has the case {case!r} already")
    try:
        problem, _, model = path.read_text().partition("\n")
    except FileNotFoundError as error:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.txt"))) or "none"
        raise UsageError(
            f"no case {case!r} was found for {operator.name}, there is: {known}. "
            f"Search with: python -m opmatrix register {operator.name} --part search"
        ) from error
    try:
        text = insert_into_models(cases.read_text(), model.strip(), problem)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}. Add by hand: {model.strip()}") from error
    write_text(cases, text)
