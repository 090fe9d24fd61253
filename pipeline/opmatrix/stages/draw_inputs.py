"""Draw inputs from the declaration for the property test: once for all versions of the kernel."""

from __future__ import annotations

from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.testdata import drawn_cases, hypothesis_draw
from opmatrix.testdata.numpy_reference import Reference


def run(layout: Paths, operator: Operator) -> None:
    """Write the drawn inputs with the outputs of the reference. Raises DataError for a reference that cannot run."""
    reference = Reference(layout, operator.spec)
    models = hypothesis_draw.collect(operator, examples=hypothesis_draw.EXAMPLES, home=layout.hypothesis)
    cases = [drawn_cases.evaluate(operator.spec, model, reference) for model in models]
    drawn_cases.write(layout.drawn_inputs(operator.name), cases)
