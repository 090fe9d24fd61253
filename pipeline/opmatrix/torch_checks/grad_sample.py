"""One sample of the gradient check: a model of one case with its tensors, some of which take a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.torch_signature import attribute_values
from opmatrix.spec import Case, Model, OpSpec, given
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.case_arrays import case_arrays
from opmatrix.torch_checks.reference_operator import differentiated_types
from opmatrix.torch_library.call import as_tuple, torch_operator, with_attributes
from opmatrix.torch_library.case_tensors import arguments, tensors

NUDGE = 2e-6  # relative, at most; more than float32 has digits for
NUDGES = 8


@dataclass(frozen=True, kw_only=True)
class GradSample:
    """One case with its tensors. `derived` are the indices of those that require a gradient."""

    spec: OpSpec
    model: Model
    case: Case
    flat: list[torch.Tensor]
    names: list[str]
    derived: list[int]

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.case.name}"

    def call(self, *derived: torch.Tensor) -> Any:
        """Call the operator and return its floating-point outputs; others have no gradient."""
        return tuple(o for o in self.call_for_all(*derived) if o.is_floating_point())

    def call_for_all(self, *derived: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the operator and return its outputs."""
        given = arguments(self.spec, self.case, self.with_derived(derived))
        return as_tuple(with_attributes(torch_operator(self.spec), self.spec, self.model)(*given))

    def with_derived(self, derived: Sequence[Any]) -> list[Any]:
        """Return one value per tensor: those of `derived` in their places."""
        flat: list[Any] = list(self.flat)
        for index, tensor in zip(self.derived, derived, strict=True):
            flat[index] = tensor
        return flat

    def leaves(self) -> tuple[torch.Tensor, ...]:
        """Return the `derived` tensors as leaves that require a gradient.

        They keep their strides unless one is 0, because gradcheck varies elements in place.
        """
        chosen = (self.flat[index].detach() for index in self.derived)
        return tuple((t.contiguous() if 0 in t.stride() else t).requires_grad_() for t in chosen)

    def described(self) -> str:
        """Return ``T=float32, dim=0, x (2, 3), bias absent``: dtypes, attributes, shapes."""
        parts = [f"{name}={dtype}" for name, dtype in self.model.types.items()]
        parts += [f"{name}={value!r}" for name, value in attribute_values(self.spec, self.model).items()]
        shapes = iter(self.flat)
        for part in self.spec.inputs:
            shown = [str(tuple(next(shapes).shape)) for _ in given(self.case, part.name)]
            parts.append(f"{part.name} {' '.join(shown) or 'absent'}")
        return ", ".join(parts)


def sample(
    spec: OpSpec, model: Model, *, without: Sequence[str], exact: bool, arrays: Sequence[Array] | None = None
) -> GradSample:
    """Return the sample of a model's first case; in float64 wherever a gradient is taken, with `exact`.

    Raises DataError for a tensor that cannot be made.
    """
    case = model.cases[0]
    made = case_arrays(spec, model, case) if arrays is None else arrays
    flat, feeds = tensors(spec, model, case, made), graph_inputs(spec, model, case)
    types = differentiated_types(spec, without)
    if exact:
        flat = [
            t.double() if t.is_floating_point() and feed.part.type in types else t
            for t, feed in zip(flat, feeds, strict=True)
        ]
    names = [feed.part.name for feed in feeds]
    derived = [n for n, t in enumerate(flat) if t.is_floating_point() and names[n] not in without]
    return GradSample(spec=spec, model=model, case=case, flat=flat, names=names, derived=derived)


def nudged(one: GradSample, *, leaves: bool = False) -> Iterator[GradSample]:
    """Yield the sample with floating inputs and attributes changed by about a millionth; `leaves`: with those that take
    a gradient."""
    signs = torch.Generator().manual_seed(0)
    attributes = {name: v for name, v in attribute_values(one.spec, one.model).items() if isinstance(v, float)}
    for _ in range(NUDGES):
        flat = [
            t
            if (n in one.derived and not leaves) or not t.is_floating_point()
            else t * (1 + NUDGE * (2 * torch.rand(t.shape, generator=signs, dtype=torch.float64) - 1)).to(t.dtype)
            for n, t in enumerate(one.flat)
        ]
        factor = 1 + NUDGE * (2 * float(torch.rand((), generator=signs)) - 1)
        scaled = {name: value * factor for name, value in attributes.items()}
        yield replace(one, flat=flat, model=replace(one.model, attributes={**one.model.attributes, **scaled}))


def redrawn(model: Model, time: int) -> Model:
    """Return the model with other random values, which depend on the case's name."""
    case = model.cases[0]
    return replace(model, cases=(replace(case, name=f"{case.name}_again_{time}"),))
