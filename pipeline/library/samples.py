"""Cases as arguments of the registered operator, with all that a user of it has: fake kernel and gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.data.numbers import case_arrays, small_and_finite
from pipeline.feeds import feeds
from pipeline.layout import Layout
from pipeline.library import torch_op, torch_versions
from pipeline.library.inputs import arguments, tensors
from pipeline.library.torch_library import LoadedLibrary
from pipeline.load import Operator
from pipeline.models.glue import GeneratedModules
from pipeline.spec import Case, Model, given

SMALL = 1000  # elements


@dataclass(frozen=True, kw_only=True)
class OpcheckSample:
    """One case, its tensors, and the arguments made of them. Where a formula for the gradient is declared, they ask for
    it."""

    model: Model
    case: Case
    tensors: tuple[torch.Tensor, ...]
    arguments: list[Any]


def complete(
    layout: Layout, operator: Operator, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[OpcheckSample]:
    """Register the fake kernel and the gradient, then yield the first small, finite case of each choice of dtypes and
    inputs: opcheck fails where an output is NaN. A torch that takes no formula gets none.
    Without `glue` the operator is torch's own, with a fake kernel."""
    assert operator.spec.torch is not None
    if generated and not operator.spec.torch.python:
        generated.fake.register_fake()
    gradient = torch_op.gradient(layout, operator.spec)
    if gradient and not torch_versions.REGISTRATION.available:
        gradient = None
    if gradient and not torch_op.has_formula(loaded.overload.name()):  # another part in this process may have done so
        gradient.register(loaded.overload.name())
    spec, seen = operator.spec, set()
    for model in operator.models:
        for case in model.cases:
            key = (tuple(model.types.items()), tuple(len(given(case, i.name)) for i in spec.inputs))
            if key in seen or not small_and_finite(numbers := case_arrays(spec, model, case), elements=SMALL):
                continue
            seen.add(key)
            flat = tensors(spec, model, case, numbers)
            for feed, tensor in zip(feeds(spec, model, case), flat, strict=True):
                if gradient and feed.part.name not in gradient.without and tensor.is_floating_point():
                    tensor.requires_grad_()
            yield OpcheckSample(model=model, case=case, tensors=tuple(flat), arguments=arguments(spec, case, flat))
