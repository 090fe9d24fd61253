"""Draw models of one case each from a declaration, always the same ones, and shrink one that is wanted."""

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
    """Return `examples` models with one case each, and always the same. `home` is where hypothesis may write.

    A constraint that the declaration does not know is not kept: reference and kernel are then both to refuse.
    """
    found: dict[str, Model] = {}

    def keep(model: Model) -> bool:
        found[model.name] = model
        return False

    find(operator, keep, examples=examples, home=home)
    return [*found.values()]


def find(operator: Operator, wanted: Callable[[Model], bool], *, examples: int, home: Path) -> Model | None:
    """Return the smallest model that is `wanted`, of those that `examples` draws lead to, or None."""
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
    """Draws each example on its own. hypothesis itself varies one for a while, which serves a search that is thousands
    of examples long, and takes numbers from the source of all imported modules, so that they would change with it."""

    random: Random

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self.random.random() < p

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **constraints: Any) -> int:
        assert min_value is not None and max_value is not None, "the strategies here draw from finite sets alone"
        return self.random.randint(min_value, max_value)

    def draw_float(self, **constraints: Any) -> float:
        raise NotImplementedError

    def draw_string(self, *arguments: Any, **constraints: Any) -> str:
        raise NotImplementedError

    def draw_bytes(self, *arguments: Any, **constraints: Any) -> bytes:
        raise NotImplementedError
