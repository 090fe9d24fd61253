"""Draw models of one case each with hypothesis, the same in every run, and shrink one that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

from opmatrix.declaration.load import Operator
from opmatrix.spec import Model
from opmatrix.testdata import strategies

EXAMPLES = 200


def collect(operator: Operator, *, examples: int, home: Path) -> list[Model]:
    """Return at most `examples` models with one case each, the same in every run; hypothesis may write to `home`.

    A model may violate a constraint that is not declared: then reference and kernel must both raise.
    """
    found: dict[str, Model] = {}

    def keep(model: Model) -> bool:
        found[model.name] = model
        return False

    find(operator, keep, examples=examples, home=home)
    return [*found.values()]


def find(operator: Operator, wanted: Callable[[Model], bool], *, examples: int, home: Path) -> Model | None:
    """Return the smallest model for which `wanted` is true, found and shrunk from `examples` draws, or None."""
    set_hypothesis_home_dir(home)
    _Independent.random = Random(operator.name)
    AVAILABLE_PROVIDERS["independent"] = _Independent
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        backend="independent",
    )
    try:
        return hypothesis.find(strategies.models(operator), wanted, settings=settings, random=Random(operator.name))
    except hypothesis.errors.NoSuchExample:
        return None


class _Independent(PrimitiveProvider):
    """Draws each example independently, so that a draw depends on the operator's name alone.

    hypothesis's own provider mutates earlier examples, which suits searches of thousands of examples, and draws
    constants from the source of all imported modules.
    """

    random: Random

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **constraints: Any) -> int:
        assert min_value is not None and max_value is not None, "the strategies here draw from finite sets alone"
        return self.random.randint(min_value, max_value)

    def _unused(self, *arguments: Any, **constraints: Any) -> Any:
        raise NotImplementedError

    draw_float = draw_string = draw_bytes = _unused
