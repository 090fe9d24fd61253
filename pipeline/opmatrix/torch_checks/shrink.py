"""Find the smallest drawn case on which a kernel fails: with hypothesis, or of a large input by its sizes."""

from __future__ import annotations

import time
from collections.abc import Callable

from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Model
from opmatrix.testdata.drawn_cases import DrawnCase


def smallest(
    layout: Paths,
    operator: Operator,
    first: DrawnCase,
    fails: Callable[[Model], bool],
    *,
    examples: int,
    seconds: float,
) -> Model | None:
    """Return the smallest model on which the kernel fails that is found within `seconds`, or None."""
    until = time.monotonic() + seconds
    failed: set[str] = set()

    def fails_in_time(model: Model) -> bool:
        if time.monotonic() < until and fails(model):
            failed.add(model.name)
        return model.name in failed

    if first.large:
        return _smaller(operator, first.model, fails_in_time)
    from opmatrix.testdata import hypothesis_draw

    return hypothesis_draw.find(operator, fails_in_time, examples=examples, home=layout.hypothesis)


def _smaller(operator: Operator, model: Model, fails: Callable[[Model], bool]) -> Model | None:
    """Return the model with each size made as small as it still fails, the largest first, or None if none is smaller.
    A fault above some size is found in as many steps as the size has bits."""
    from opmatrix.testdata import draw_large  # here, because it imports hypothesis

    found: Model | None = None
    for old in draw_large.sizes(operator, model):
        low, high, at = 1, old, found or model
        while low < high:
            middle = (low + high) // 2
            candidate = draw_large.with_size(operator, at, old, middle)
            if candidate is not None and fails(candidate):
                found, high = candidate, middle
            else:
                low = middle + 1
    return found
