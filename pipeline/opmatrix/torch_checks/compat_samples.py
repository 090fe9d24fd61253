"""The samples of `doit compat`: small cases, and the same with other sizes and other values.

No reference judges them: each way to run an operator is compared with the plain call, which `register` compares with
the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from opmatrix.basics.errors import CompatError
from opmatrix.data.case_arrays import described, elements
from opmatrix.data.compare import EXACT, compare
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs
from opmatrix.search.shapes import resized_shapes
from opmatrix.signature.signature import attribute_values, dtype_of, is_composed, is_mutable, seeds
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Case, MemoryLayout, Model, OpSpec, Values, shape_of, tensors_of
from opmatrix.torch_checks.backward_calls import largest
from opmatrix.torch_checks.case_calls import CaseCall, case_call
from opmatrix.torch_checks.gradient_samples import reshaped
from opmatrix.torch_ops.case_tensors import as_array
from opmatrix.torch_ops.load import Gradient

SMALL = 4096  # elements of one tensor
_BASES = 4
_LARGER = (1, 2, 3, 4, 5, 6, 8)  # what is added to each size of a case


Tensors = Sequence[torch.Tensor]
_GRADIENT_RTOL = {torch.float64: 1e-9, torch.float32: 1e-4}  # batched products add up in another order


@dataclass(frozen=True, kw_only=True)
class Compat:
    """An operator with its samples, its gradient if it has one, and the library that defines it if one does."""

    spec: OpSpec
    samples: Sequence[CaseCall]
    gradient: Gradient | None
    library: Path | None = None

    @property
    def written(self) -> list[CaseCall]:
        """The samples of the operator that writes arguments, if there is one."""
        return [replace(one, composed=True) for one in self.samples if self._is_called and is_mutable(self.spec)]

    @property
    def as_called(self) -> list[CaseCall]:
        """The samples of the operator in the library, and of the one that others call if that is another one."""
        return [*self.samples, *(replace(one, composed=True) for one in self.samples if self._is_called)]

    @property
    def _is_called(self) -> bool:
        """Whether there is one that others call. That with a generator has a row of its own."""
        return is_composed(self.spec) and not seeds(self.spec)


def is_derived(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may have a gradient: torch computes nothing in float8."""
    return tensor.is_floating_point() and not _is_float8(tensor)


def _is_float8(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 1


class RefusedError(Exception):
    """What a row does not serve, for the reason that is the message."""


def bases(operator: Operator, without: Sequence[str] = ()) -> list[CaseCall]:
    """Return the smallest accepted case of each dtype, rank and set of inputs whose sizes are 2 or more where it can
    be: torch.compile makes a graph of its own for the sizes 0 and 1. No gradient is taken for the inputs `without`."""
    found: dict[tuple[object, ...], CaseCall] = {}
    cases = [(m, c) for m in operator.models for c in m.cases if described(c) and _is_small(c)]
    for model, case in sorted(cases, key=lambda one: (_ones(one[1]), sum(elements(one[1])))):
        counts = tuple(len(tensors_of(case, i.name)) for i in operator.spec.inputs)
        ranks = tuple(len(shape_of(t)) for i in operator.spec.inputs for t in tensors_of(case, i.name))
        key = (*model.types.items(), *counts, *ranks)
        if key not in found and (one := case_call(operator.spec, replace(model, cases=(case,)))).accepts(one.tensors):
            pairs = enumerate(zip(one.names, one.tensors, strict=True))
            found[key] = replace(one, derived=[n for n, (name, t) in pairs if is_derived(t) and name not in without])
    # Those first whose dtypes no one before has, and float8 last, which no gradient has.
    new: dict[object, CaseCall] = {}
    for one in (ordered := sorted(found.values(), key=lambda one: any(map(_is_float8, one.tensors)))):
        new.setdefault(tuple(one.model.types.items()), one)
    return [*new.values(), *(one for one in ordered if one not in new.values())][:_BASES]


def _is_small(case: Case) -> bool:
    return all(0 < n <= SMALL for n in elements(case))


def _ones(case: Case) -> int:
    return sum(size == 1 for name in case.inputs for t in tensors_of(case, name) for size in shape_of(t))


def resized(base: CaseCall) -> Iterator[CaseCall]:
    """Yield the case with other sizes: one of them, then all, as far as the operator accepts them.

    Memory layouts are those of the case: torch.compile compiles again for other strides.
    """
    spec, model, case = base.spec, base.model, base.case
    listed = {n for name in case.inputs for t in tensors_of(case, name) if isinstance(t, Values) for n in shape_of(t)}
    own = dict.fromkeys(n for t in base.tensors for n in t.shape if n > 1 and n not in listed)
    seen = {_shapes(base)}
    for more in _LARGER:
        for sizes in ([n] for n in own) if len(own) == 1 else ([[n] for n in own] + [[*own]]):
            changes = {n: n + more * (1 + index) for index, n in enumerate(sizes)}
            shapes = resized_shapes(spec, model, case, attribute_values(spec, model), changes)
            made = None if shapes is None else reshaped(spec, model, shapes)
            if made is None or not _is_small(made.cases[0]) or _layouts(spec, made) != _layouts(spec, model):
                continue
            sample = base.with_model(made)
            if _shapes(sample) not in seen and sample.accepts(sample.tensors):
                seen.add(_shapes(sample))
                yield sample


def _shapes(one: CaseCall) -> tuple[torch.Size, ...]:
    return tuple(t.shape for t in one.tensors)


def _layouts(spec: OpSpec, model: Model) -> list[MemoryLayout]:
    return [feed.tensor.layout for feed in graph_inputs(spec, model, model.cases[0])]


def plain(sample: CaseCall) -> tuple[torch.Tensor, ...]:
    """Return the outputs of the operator in the library."""
    return replace(sample, composed=False).call(*sample.tensors)


def require_equal(sample: CaseCall, actual: Tensors, expected: Tensors, how: str, *, rounded: bool = False) -> None:
    """Raise CompatError unless tensors are equal: both ways call one kernel. `rounded`: as far as the declared
    tolerances, where one way calls it with other sizes."""
    if len(actual) != len(expected):
        raise CompatError(f"{sample.subject}: {how}, there are {len(actual)} outputs, of a plain call {len(expected)}")
    for output, a, e in zip(with_outputs(sample.spec, len(expected)).outputs, actual, expected, strict=True):
        tolerance = EXACT
        if rounded:
            tolerance = sample.spec.tolerances["custom"][dtype_of(output.type, sample.model.types)]
        compared = compare(as_array(a.contiguous()), as_array(e.contiguous()), tolerance=tolerance)
        if not compared.ok:
            raise CompatError(f"{sample.subject}: {how}, {output.name} is not that of a plain call: {compared}")


def require_near(sample: CaseCall, actual: Tensors, expected: Tensors, how: str) -> None:
    size = max(1.0, *map(largest, expected))
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        rtol = _GRADIENT_RTOL.get(e.dtype, 1e-2)
        if a.shape != e.shape or a.dtype != e.dtype:
            raise CompatError(
                f"{sample.subject}: {how}, gradient {index} is {a.dtype} {tuple(a.shape)}, that of backward() is "
                f"{e.dtype} {tuple(e.shape)}"
            )
        differ = ~torch.isclose(a, e, rtol=rtol, atol=rtol * size, equal_nan=True)
        if bool(differ.any()):
            at = tuple(int(i) for i in differ.nonzero()[0])
            raise CompatError(
                f"{sample.subject}: {how}, gradient {index} at {at} is {a[at].item():.6g}, that of backward() is "
                f"{e[at].item():.6g}"
            )


def require_refused(call: Callable[[], object], why: str) -> None:
    """Raise CompatError unless a call raises an error with the reason."""
    try:
        call()
    except RuntimeError as error:
        if why in str(error):
            return
        raise
    raise CompatError(f"expected an error, and it ran: {why}")
