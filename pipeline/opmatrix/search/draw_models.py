"""Draw models of one case each with hypothesis, the same in every run, and shrink one that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider
from hypothesis.strategies import SearchStrategy

from opmatrix.basics.errors import DataError
from opmatrix.declaration.load import Operator
from opmatrix.search import draw
from opmatrix.search.shapes import most_of_inputs
from opmatrix.signature.signature import dtype_tuples
from opmatrix.spec import Model, OpSpec

EXAMPLES = 200
EXAMPLES_EACH = 72  # of each choice of dtypes: with fewer, special values are missing in some


def enough(spec: OpSpec) -> int:
    """Return how many inputs to draw, if they are small."""
    return max(EXAMPLES, EXAMPLES_EACH * len(dtype_tuples(spec)))


def collect(operator: Operator, *, examples: int, home: Path, seed: str = "") -> list[Model]:
    """Return at most `examples` models with one case each, the same in every run; hypothesis may write to `home`.

    Another `seed` gives others. A model may violate a constraint that is not declared: then reference and kernel
    must both raise. Raises DataError where the declaration allows none.
    """
    found: dict[str, Model] = {}

    def keep(model: Model) -> bool:
        found[model.name] = model
        return False

    search(draw.models(operator), keep, seed=f"{operator.name}{seed}", examples=examples, home=home)
    if not found:
        raise DataError(
            f"{operator.name}: the declaration allows no input that the search can draw, with at most "
            f"{most_of_inputs(operator.spec)} elements in each. Correct sizes (dims) and rules (values) that "
            "contradict each other; where numbers in dims need more elements, declare names in their place"
        )
    return [*found.values()]


def find(operator: Operator, wanted: Callable[[Model], bool], *, examples: int, home: Path) -> Model | None:
    """Return the smallest model for which `wanted` is true, found and shrunk from `examples` draws, or None."""
    return search(draw.models(operator), wanted, seed=operator.name, examples=examples, home=home)


def one(strategy: SearchStrategy[Model], *, seed: str, home: Path) -> Model | None:
    """Return one model that a strategy draws, mostly of the simplest values, or None where all are refused."""
    found: list[Model] = []

    def keep(model: Model) -> bool:
        found.append(model)
        return False

    search(strategy, keep, seed=seed, examples=1, home=home, simple=0.8)
    return found[-1] if found else None


def search(
    strategy: SearchStrategy[Model],
    wanted: Callable[[Model], bool],
    *,
    seed: str,
    examples: int,
    home: Path,
    simple: float = 0.0,
) -> Model | None:
    set_hypothesis_home_dir(home)
    _Independent.random, _Independent.simple = Random(seed), simple
    AVAILABLE_PROVIDERS["independent"] = _Independent
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        backend="independent",
    )
    try:
        return hypothesis.find(strategy, wanted, settings=settings, random=Random(seed))
    except (hypothesis.errors.NoSuchExample, hypothesis.errors.Unsatisfiable):  # none wanted, or none allowed
        return None


class _Independent(PrimitiveProvider):
    """Draws each example independently, so that a draw depends on the operator's name alone.

    hypothesis's own provider mutates earlier examples, which suits searches of thousands of examples, and draws
    constants from the source of all imported modules.
    """

    random: Random
    simple: float  # how often an integer is the smallest

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **constraints: Any) -> int:
        assert min_value is not None and max_value is not None, "the strategies here draw from finite sets alone"
        if self.simple and self.random.random() < self.simple:
            return min_value
        return self.random.randint(min_value, max_value)

    def _unused(self, *arguments: Any, **constraints: Any) -> Any:
        raise NotImplementedError

    draw_float = draw_string = draw_bytes = _unused
