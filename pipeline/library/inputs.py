"""The tensors of a case in torch, and the arguments that an operator takes them as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pipeline.data import arrays
from pipeline.data.arrays import Array
from pipeline.feeds import Feed, case_arguments, feeds
from pipeline.library.strided import strided
from pipeline.schema import dtype_of
from pipeline.spec import Case, Model, OpSpec


def case_arrays(spec: OpSpec, model: Model, case: Case) -> list[Array]:
    """Return the numbers of a case, one array per tensor that it gives, as the data stage writes them."""
    return [
        arrays.array(
            feed.tensor,
            dtype_of(feed.part.type, model.types),
            seed_of=arrays.seed_of(spec.name, case.name, _name(feed)),
        )
        for feed in feeds(spec, model, case)
    ]


def _name(feed: Feed) -> str:
    """Return the name that seeds a tensor, whatever it is called in the model's graph."""
    return f"{feed.part.name}_{feed.index}" if feed.part.variadic else feed.part.name


def tensors(spec: OpSpec, model: Model, case: Case, numbers: Sequence[Array]) -> list[torch.Tensor]:
    """Return `numbers`, one array per tensor of the case, with the strides that the case asks for."""
    given = zip(feeds(spec, model, case), numbers, strict=True)
    return [strided(array, feed.tensor.layout) for feed, array in given]


def arguments(spec: OpSpec, case: Case, flat: Sequence[torch.Tensor]) -> list[Any]:
    """Return one argument per input: a tensor, None for an absent one, a list for a variadic one."""
    return [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, case, flat)]


def small_and_finite(numbers: Sequence[Array], *, elements: int) -> bool:
    """Return whether every tensor has 1 to `elements` elements, and no NaN or infinity."""
    return all(0 < array.size <= elements and bool(np.isfinite(array).all()) for array in numbers)
