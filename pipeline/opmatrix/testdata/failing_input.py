"""Keep a drawn input on which a kernel fails: in the message of the failure, for adopt-case, and for --case."""

from __future__ import annotations

from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.declaration.python_source import source
from opmatrix.errors import one_line
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import Model
from opmatrix.testdata import drawn_cases
from opmatrix.testdata.drawn_cases import DrawnCase


def keep(layout: Paths, operator: Operator, found: DrawnCase, problem: str, *, where: str, which: str) -> str:
    """Write a failing case to files, for adopt-case and for `stored`; return the message."""
    model = found.model
    write_text(layout.failing_case(operator.name, model.name), f"{one_line(problem)}\n{source(model)}\n")
    drawn_cases.write(_file(layout, operator, model.name), [found], operator=operator.name)
    return (
        f"{operator.name}-{model.name} in {where}: {problem}. {which}: {_described(model)}. "
        f"Keep it as a case with: python -m opmatrix adopt-case {operator.name} {model.name}"
    )


def stored(layout: Paths, operator: Operator, case: str) -> DrawnCase | None:
    """Return the drawn case with this name, or the one that `keep` wrote, or None."""
    kept = _file(layout, operator, case)
    path = kept if kept.exists() else layout.drawn_inputs(operator.name)
    return next((one for one in drawn_cases.read(path, operator.name) if one.model.name == case), None)


def _described(model: Model) -> str:
    """Return dtypes, attributes, and the inputs: their values, or how they are drawn."""
    parts = (model.types, model.attributes, model.cases[0].inputs)
    return " ".join(source(dict(part), width=120) for part in parts if part)


def _file(layout: Paths, operator: Operator, case: str) -> Path:
    return layout.failing_case(operator.name, case).with_suffix(".cases")
