"""Draw inputs from the declaration, for the search: once, for every kernel that is tried on them."""

from __future__ import annotations

from pipeline.data import draw, drawn
from pipeline.data.reference import Reference
from pipeline.layout import Layout
from pipeline.load import Operator


def run(layout: Layout, operator: Operator) -> None:
    """Write what was drawn, with the answers of the reference. Raises DataError for a reference that cannot be run."""
    reference = Reference(layout, operator.spec)
    models = draw.collect(operator, examples=draw.EXAMPLES, home=layout.hypothesis)
    drawn.write(layout.drawn(operator.name), [drawn.evaluate(operator.spec, model, reference) for model in models])
