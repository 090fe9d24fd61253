"""Draw inputs from the declaration for the search: once for all versions of the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from opmatrix.basics.interrupts import TooSlow, cpu_limit, cpu_time, memory_limit
from opmatrix.basics.step_log import Progress
from opmatrix.data.reference import Reference
from opmatrix.declaration.checks import DRAWN, searches_in_onnx_runtime
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord
from opmatrix.search import coverage, draw_models, drawn
from opmatrix.search import large as draw_large
from opmatrix.search.drawn import Drawn, DrawnCase
from opmatrix.search.shapes import most_of_inputs
from opmatrix.sizes.values import ruled_inputs
from opmatrix.spec import Model

SECONDS = 5.0  # of CPU time for the reference on all small inputs: any number of slow ones takes no more
SHARE = 20  # parts of what is left, of which one input gets one
LEAST = 0.005  # of one input
LARGE_SECONDS = 2.0  # the same for the large inputs together
ONE_LARGE_SECONDS = 0.1  # for one of them, but for the first half of what is left
MEGABYTES = 1000  # that may be allocated: one call of NumPy ends before it is stopped, and this bounds it
STEP = 4  # times as many elements as in the large input before
DRAWN_ELEMENTS = 2**23  # of the largest input in all drawn ones, but
FEWEST = 40  # inputs at least
MOST_BYTES = 64_000_000  # of expected outputs, whose sizes the kernel decides
SLOW, HUGE, SLOW_LARGE = "too slow in the reference", "too large an output", "large, and too slow in the reference"


def run(paths: Paths, operator: Operator, *, seed: str = "") -> None:
    """Write the drawn inputs with the outputs of the reference; another `seed` gives others.

    Raises DataError for a reference that cannot run.
    """
    reference = Reference(paths, operator.spec)
    drawing = _Drawing(operator, reference)
    with memory_limit(MEGABYTES):
        cases = drawing.small(paths, seed)
        if operator.spec.elementwise:
            cases += filter(None, map(drawing.evaluate, draw_models.in_other_formats(operator)))
        if coverage.measure(operator, Drawn(cases=cases, dropped={}))["weak"]:  # once more, maybe by bad luck
            cases += drawing.small(paths, f"{seed} more")
        cases += drawing.large(paths, seed)
    reference.require_independent()
    if searches_in_onnx_runtime(operator.spec):  # that in torch has a record of its own
        found = coverage.measure(operator, Drawn(cases=cases, dropped=drawing.dropped, too_slow=drawing.too_slow))
        record = CheckRecord(
            op=operator.name, check=DRAWN, outcome="verified", results=(found,), weak=tuple(found["weak"])
        )
        verdict.write(paths.drawn_record(operator.name), record)
    path = paths.drawn_inputs(operator.name)
    ruled = [part.name for part, _ in ruled_inputs(operator.spec)]
    drawn.write(path, cases, operator=operator.name, ruled=ruled, dropped=drawing.dropped, too_slow=drawing.too_slow)


class _Drawing:
    """Evaluates drawn models within limits of time and memory, and counts what it drops."""

    def __init__(self, operator: Operator, reference: Reference) -> None:
        self._operator, self._reference = operator, reference
        self._left, self._left_large = SECONDS, LARGE_SECONDS
        self.dropped: Counter[str] = Counter()
        self.too_slow: list[Model] = []
        self._progress = Progress()

    def small(self, paths: Paths, seed: str) -> list[DrawnCase]:
        spec = self._operator.spec  # fewer inputs where constant sizes make each large
        examples = max(FEWEST, min(draw_models.enough(spec), DRAWN_ELEMENTS // most_of_inputs(spec)))
        models = draw_models.collect(self._operator, examples=examples, home=paths.hypothesis, seed=seed)
        found = []
        for done, model in enumerate(models):
            self._progress.show(f"{done} of {len(models)} small inputs in the reference")
            found.append(self.evaluate(model))
        return [one for one in found if one]

    def evaluate(self, model: Model) -> DrawnCase | None:
        """Evaluate a small input. Each gets a share of the time that is left, so that slow ones leave time for all."""
        one, took = self._within(self._left / SHARE, model)
        self._left -= took
        if one is None:
            self.dropped[SLOW] += 1
            self.too_slow.append(model)
        return one and self._kept(one)

    def _within(self, seconds: float, model: Model) -> tuple[DrawnCase | None, float]:
        """Return the evaluated input, or None where the reference takes longer or too much memory, and the CPU time."""
        began, one = cpu_time(), None
        with suppress(TooSlow, MemoryError), cpu_limit(max(seconds, LEAST)):
            one = drawn.evaluate(self._operator.spec, model, self._reference)
        return one, cpu_time() - began

    def _kept(self, one: DrawnCase) -> DrawnCase | None:
        if sum(output.nbytes for output in one.expected or ()) <= MOST_BYTES:
            return one
        self.dropped[HUGE] += 1
        return None

    def large(self, paths: Paths, seed: str) -> Iterator[DrawnCase]:
        """Yield an input for each number of elements that the reference computes in time. The sizes of the cases take
        turns, and where one of them is too slow, the next one follows."""
        growing = [_Growing(choice=choice) for choice in draw_large.choices(self._operator)]
        reached = False
        for index, elements in enumerate(draw_large.ELEMENTS if growing else ()):
            first, own = index % len(growing), f"{self._operator.name}{seed} {index}"
            self._progress.show(f"{index} of {len(draw_large.ELEMENTS)} large inputs, now {elements} elements")
            for one in (*growing[first:], *growing[:first]):
                limit = min(self._left_large / 2, ONE_LARGE_SECONDS if reached else LARGE_SECONDS)
                if grown := self._grown(paths, one, elements, own, limit):
                    reached = True
                    yield grown
                    break
            else:
                self.dropped[SLOW_LARGE] += 1
        if not reached:  # a smaller one is better than none
            yield from sorted(
                (one.largest for one in growing if one.largest), key=lambda one: sum(a.size for a in one.arrays)
            )[-1:]

    def _grown(self, paths: Paths, one: _Growing, elements: int, seed: str, limit: float) -> DrawnCase | None:
        """Return an input of so many elements, or None. Smaller ones come first: where work or memory grow with the
        square, the whole may take gigabytes."""
        while not one.stopped:
            following = min(elements, one.elements * STEP)
            expected = one.seconds * (following / one.elements) ** 2
            one.stopped = limit <= 0 or expected > max(limit, STEP * ONE_LARGE_SECONDS)
            if not one.stopped:
                grown, one.seconds = self._first_computed(paths, one.choice, following, seed, limit)
                one.elements, one.largest, one.stopped = following, grown or one.largest, grown is None
                if grown and following == elements:
                    return grown
        return None

    def _first_computed(
        self, paths: Paths, choice: draw_large.Large, elements: int, seed: str, limit: float
    ) -> tuple[DrawnCase | None, float]:
        """Return an input of so many elements that the reference computes, or None, and the CPU time of it."""
        took = 0.0
        for new in draw_large.sizes_of(self._operator, choice, elements):
            model = draw_models.one(choice.model(self._operator, new), seed=seed, home=paths.hypothesis)
            if model is None:  # the declaration allows no input of this size
                continue
            one, took = self._within(limit, model)
            self._left_large -= took
            if one is None or one.expected is not None:  # a multiple is as slow
                return one and self._kept(replace(one, large=True)), took
        return None, took


@dataclass(kw_only=True)
class _Growing:
    """The inputs in which one size of a case grows: the largest so far, its elements and the CPU time that it took."""

    choice: draw_large.Large
    elements: int = draw_large.ELEMENTS[0] // STEP**2
    seconds: float = 0.0
    largest: DrawnCase | None = None
    stopped: bool = False
