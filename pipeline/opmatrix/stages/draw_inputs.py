"""Draw inputs from the declaration for the property test: once for all versions of the kernel."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from opmatrix.declaration.load import Operator
from opmatrix.declaration.value_rules import ruled_inputs
from opmatrix.project.paths import Paths
from opmatrix.spec import Model
from opmatrix.testdata import draw_large, drawn_cases, hypothesis_draw, search_yield
from opmatrix.testdata.cpu_limit import TooSlow, cpu_limit
from opmatrix.testdata.declared_shapes import most_of_inputs
from opmatrix.testdata.drawn_cases import Drawn, DrawnCase
from opmatrix.testdata.numpy_reference import Reference

SECONDS = 1.0  # of CPU time for the reference on one input, but
TIMES = 20  # times as long as on most inputs, and
LEAST_SECONDS = 0.1  # at least
LARGE_SECONDS = 0.1  # the same on a large one, of which there are few
STEP = 4  # times as many elements as in the large input before
ALL_SECONDS = 10.0  # for all that are too slow; then each gets the least
DRAWN_ELEMENTS = 2**23  # of the largest input in all drawn ones, but
FEWEST = 40  # inputs at least
MOST_BYTES = 64_000_000  # of expected outputs, whose sizes the kernel decides
SLOW, HUGE, SLOW_LARGE = "too slow in the reference", "too large an output", "large, and too slow in the reference"


def run(layout: Paths, operator: Operator, *, seed: str = "") -> None:
    """Write the drawn inputs with the outputs of the reference; another `seed` gives others.

    Raises DataError for a reference that cannot run.
    """
    reference = Reference(layout, operator.spec)
    drawing = _Drawing(operator, reference)
    cases = drawing.small(layout, seed)
    if search_yield.measure(operator, Drawn(cases=cases, dropped={}))["weak"]:  # once more, maybe by bad luck
        cases += drawing.small(layout, f"{seed} more")
    cases += drawing.large(layout, seed)
    path = layout.drawn_inputs(operator.name)
    ruled = [part.name for part, _ in ruled_inputs(operator.spec)]
    drawn_cases.write(path, cases, operator=operator.name, ruled=ruled, dropped=drawing.dropped)


class _Drawing:
    """Evaluates drawn models within limits of time and memory, and counts what it drops."""

    def __init__(self, operator: Operator, reference: Reference) -> None:
        self._operator, self._reference = operator, reference
        self._left = ALL_SECONDS
        self._took: list[float] = []
        self.dropped: Counter[str] = Counter()

    def small(self, layout: Paths, seed: str) -> list[DrawnCase]:
        models = hypothesis_draw.collect(self._operator, examples=self._examples(), home=layout.hypothesis, seed=seed)
        return [one for model in models if (one := self.evaluate(model))]

    def _examples(self) -> int:
        """Return how many inputs to draw: fewer where the numbers in dims make each large."""
        return max(FEWEST, min(hypothesis_draw.EXAMPLES, DRAWN_ELEMENTS // most_of_inputs(self._operator.spec)))

    def evaluate(self, model: Model, *, large: bool = False) -> DrawnCase | None:
        limit = LARGE_SECONDS if large else self._limit()
        began = time.process_time()
        try:
            with cpu_limit(limit):
                one = drawn_cases.evaluate(self._operator.spec, model, self._reference)
        except TooSlow:
            self._left -= time.process_time() - began
            self.dropped[SLOW_LARGE if large else SLOW] += 1
            return None
        if not large:
            self._took.append(time.process_time() - began)
        if sum(output.nbytes for output in one.expected or ()) > MOST_BYTES:
            self.dropped[HUGE] += 1
            return None
        return replace(one, large=large)

    def _limit(self) -> float:
        """An attribute without a limit may be a number of loops, of which most draws have few."""
        if self._left <= 0:
            return LEAST_SECONDS
        usual = TIMES * median(self._took) if len(self._took) >= TIMES else SECONDS
        return min(SECONDS, max(LEAST_SECONDS, usual))

    def large(self, layout: Paths, seed: str) -> Iterator[DrawnCase]:
        """Yield an input for each number of elements that the reference computes in time, the sizes of the cases in
        turn. Smaller ones come first: where work or memory grow with the square, the whole may take gigabytes."""
        choices = draw_large.choices(self._operator)
        known, seconds = draw_large.ELEMENTS[0] // STEP**2, 0.0
        for index, elements in enumerate(draw_large.ELEMENTS if choices else ()):
            choice, own = choices[index % len(choices)], f"{self._operator.name}{seed} {index}"
            found: DrawnCase | None = None
            while found is None or known < elements:
                following = min(elements, known * STEP)
                if seconds * (following / known) ** 2 > LARGE_SECONDS * STEP:
                    self.dropped[SLOW_LARGE] += 1
                    break
                began = time.process_time()
                if (one := self._first_computed(layout, choice, following, own)) is None:
                    break
                found, known, seconds = one, following, time.process_time() - began
            if found:
                yield found

    def _first_computed(self, layout: Paths, choice: draw_large.Large, elements: int, seed: str) -> DrawnCase | None:
        for new in draw_large.sizes_of(self._operator, choice, elements):
            model = hypothesis_draw.one(choice.model(self._operator, new), seed=seed, home=layout.hypothesis)
            if model is None:  # the declaration allows no input of this size
                continue
            one = self.evaluate(model, large=True)
            if one is None or one.expected is not None:  # a multiple is as slow
                return one
        return None
