"""Draw inputs from the declaration, for the search: once, for every kernel that is tried on them."""

from __future__ import annotations

from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.testdata import drawn_cases, hypothesis_draw
from opmatrix.testdata.numpy_reference import Reference


def run(layout: Paths, operator: Operator) -> None:
    """Write what was drawn, with the answers of the reference. Raises DataError for a reference that cannot be run."""
    reference = Reference(layout, operator.spec)
    models = hypothesis_draw.collect(operator, examples=hypothesis_draw.EXAMPLES, home=layout.hypothesis)
    drawn_cases.write(
        layout.drawn_inputs(operator.name), [drawn_cases.evaluate(operator.spec, model, reference) for model in models]
    )
