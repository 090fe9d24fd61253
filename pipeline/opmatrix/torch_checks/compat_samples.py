"""The samples of `doit compat`: small cases, and the same with other sizes and other values.

No reference judges them: each way to run an operator is compared with the plain call, which `register` compares with
the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from opmatrix.basics.errors import CompatError
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays, described, elements
from opmatrix.data.compare import EXACT, compare
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs
from opmatrix.search.shapes import resized_shapes
from opmatrix.signature.signature import attribute_values, callers_name, dtype_of, is_composed, is_mutable, seeds
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Case, MemoryLayout, Model, OpSpec, Values, given, shape_of
from opmatrix.torch_checks.backward_calls import largest
from opmatrix.torch_checks.gradient_samples import reshaped
from opmatrix.torch_ops.call import CALL_ERRORS, ComposedCall, as_tuple, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, strided
from opmatrix.torch_ops.load import Gradient

SMALL = 4096  # elements of one tensor
_BASES = 4
_LARGER = (1, 2, 3, 4, 5, 6, 8)  # what is added to each size of a case


Tensors = Sequence[torch.Tensor]
_GRADIENT_RTOL = {torch.float64: 1e-9, torch.float32: 1e-4}  # batched products add up in another order


@dataclass(frozen=True, kw_only=True)
class CompatSample:
    """One case of an operator: a model of this case alone, and its arrays. `composed`: it calls the operator that
    others call, with copies of what that writes, in place of the one in the library."""

    spec: OpSpec
    model: Model
    operator: Any
    composed: bool = False

    @cached_property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        case = self.model.cases[0]
        made: Sequence[Array] = case_arrays(self.spec, self.model, case)
        inputs = graph_inputs(self.spec, self.model, case)
        return tuple(strided(a, feed.tensor.layout) for a, feed in zip(made, inputs, strict=True))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared input of each tensor."""
        return tuple(feed.part.name for feed in graph_inputs(self.spec, self.model, self.model.cases[0]))

    @property
    def layouts(self) -> list[MemoryLayout]:
        feeds = graph_inputs(self.spec, self.model, self.model.cases[0])
        return [feed.tensor.layout for feed in feeds]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(t.shape) for t in self.tensors)

    def __str__(self) -> str:
        """Return the case with dtypes and shapes: the subject of a message."""
        shown = ", ".join(
            f"{n}: {str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}"
            for n, t in zip(self.names, self.tensors, strict=True)
        )
        called = f" of {callers_name(self.spec)}" if self.composed else ""
        return f"case {self.model.cases[0].name}{called} ({shown})"

    def call(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the operator with these tensors and the attributes of the case; return its outputs."""
        return as_tuple(self.function(*self.arguments_of(tensors)))

    def arguments_of(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return one argument per input: a tensor, None, or a list."""
        return arguments(self.spec, self.model.cases[0], tensors)

    @cached_property
    def function(self) -> Any:
        """The operator with the attributes of the case, as a function of its inputs."""
        if self.composed:
            return ComposedCall(self.spec, self.model)
        return with_attributes(self.operator, self.spec, self.model)

    @property
    def functional(self) -> CompatSample:
        """The same case of the operator in the library."""
        return replace(self, composed=False)

    @cached_property
    def arguments(self) -> list[Any]:
        """The arguments of the case."""
        return self.arguments_of(self.tensors)

    def accepts(self, tensors: Tensors) -> bool:
        """Return whether the operator takes these tensors: a kernel and rules of values may refuse some."""
        try:
            self.call(*tensors)
        except CALL_ERRORS:
            return False
        return True

    def renamed(self, suffix: str) -> CompatSample:
        """Return the same case with other random values, which follow from its name."""
        (case,) = self.model.cases
        return replace(self, model=replace(self.model, cases=(replace(case, name=f"{case.name}{suffix}"),)))


@dataclass(frozen=True, kw_only=True)
class Compat:
    """An operator with its samples, its gradient if it has one, and the library that defines it if one does."""

    operator: Operator
    samples: Sequence[CompatSample]
    gradient: Gradient | None
    library: Path | None = None

    @property
    def spec(self) -> OpSpec:
        return self.operator.spec

    @property
    def written(self) -> list[CompatSample]:
        """The samples of the operator that writes arguments, if there is one."""
        return [replace(one, composed=True) for one in self.samples if self._is_called and is_mutable(self.spec)]

    @property
    def as_called(self) -> list[CompatSample]:
        """The samples of the operator in the library, and of the one that others call if that is another one."""
        return [*self.samples, *(replace(one, composed=True) for one in self.samples if self._is_called)]

    @property
    def _is_called(self) -> bool:
        """Whether there is one that others call. That with a generator has a row of its own."""
        return is_composed(self.spec) and not seeds(self.spec)

    def derived(self, base: CompatSample) -> list[int]:
        """Return the tensors of a sample for which a gradient is taken, by their index."""
        without = self.gradient.without if self.gradient else ()
        named = enumerate(zip(base.names, base.tensors, strict=True))
        return [n for n, (name, t) in named if is_derived(t) and name not in without]


def is_derived(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may have a gradient: torch computes nothing in float8."""
    return tensor.is_floating_point() and not _is_float8(tensor)


def _is_float8(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 1


class RefusedError(Exception):
    """What a row does not serve, for the reason that is the message."""


def bases(operator: Operator, overload: Any) -> list[CompatSample]:
    """Return the smallest accepted case of each dtype, rank and set of inputs whose sizes are 2 or more where it can
    be: torch.compile makes a graph of its own for the sizes 0 and 1."""
    found: dict[tuple[object, ...], CompatSample] = {}
    cases = [(m, c) for m in operator.models for c in m.cases if described(c) and _is_small(c)]
    for model, case in sorted(cases, key=lambda one: (_ones(one[1]), sum(elements(one[1])))):
        counts = tuple(len(given(case, i.name)) for i in operator.spec.inputs)
        ranks = tuple(len(shape_of(t)) for i in operator.spec.inputs for t in given(case, i.name))
        key = (*model.types.items(), *counts, *ranks)
        sample = CompatSample(spec=operator.spec, model=replace(model, cases=(case,)), operator=overload)
        if key not in found and sample.accepts(sample.tensors):
            found[key] = sample
    # float8 last, which no gradient has
    return _first_of_each(sorted(found.values(), key=lambda one: any(map(_is_float8, one.tensors))))[:_BASES]


def _first_of_each(found: list[CompatSample]) -> list[CompatSample]:
    """Return samples with those first whose dtypes no sample before has."""
    seen: set[object] = set()
    new: list[CompatSample] = []
    for sample in found:
        types = tuple(sample.model.types.items())
        if types not in seen:
            new.append(sample)
        seen.add(types)
    return new + [sample for sample in found if sample not in new]


def _is_small(case: Case) -> bool:
    return all(0 < n <= SMALL for n in elements(case))


def _ones(case: Case) -> int:
    """Return how many axes have one element."""
    return sum(size == 1 for name in case.inputs for t in given(case, name) for size in shape_of(t))


def resized(base: CompatSample) -> Iterator[CompatSample]:
    """Yield the case with other sizes: one of them, then all, as far as the operator accepts them.

    Memory layouts are those of the case: torch.compile compiles again for other strides.
    """
    spec, model = base.spec, base.model
    (case,) = model.cases
    listed = {n for name in case.inputs for t in given(case, name) if isinstance(t, Values) for n in shape_of(t)}
    own = dict.fromkeys(n for shape in base.shapes for n in shape if n > 1 and n not in listed)
    seen = {base.shapes}
    for more in _LARGER:
        for sizes in ([n] for n in own) if len(own) == 1 else ([[n] for n in own] + [[*own]]):
            changes = {n: n + more * (1 + index) for index, n in enumerate(sizes)}
            shapes = resized_shapes(spec, model, case, attribute_values(spec, model), changes)
            made = None if shapes is None else reshaped(spec, model, shapes)
            if made is None or not _is_small(made.cases[0]):
                continue
            sample = replace(base, model=made)
            if sample.layouts == base.layouts and sample.shapes not in seen and sample.accepts(sample.tensors):
                seen.add(sample.shapes)
                yield sample


def require_equal(sample: CompatSample, found: Tensors, expected: Tensors, how: str, *, rounded: bool = False) -> None:
    """Raise CompatError unless tensors are equal: both ways call one kernel. `rounded`: as far as the declared
    tolerances, where one way calls it with other sizes."""
    if len(found) != len(expected):
        raise CompatError(f"{sample}: {how}, there are {len(found)} outputs, of a plain call {len(expected)}")
    for output, a, e in zip(with_outputs(sample.spec, len(expected)).outputs, found, expected, strict=True):
        tolerance = EXACT
        if rounded:
            tolerance = sample.spec.tolerances["custom"][dtype_of(output.type, sample.model.types)]
        compared = compare(as_array(a.contiguous()), as_array(e.contiguous()), tolerance=tolerance)
        if not compared.ok:
            raise CompatError(f"{sample}: {how}, {output.name} is not that of a plain call: {compared}")


def require_near(sample: CompatSample, found: Tensors, expected: Tensors, how: str) -> None:
    size = max(1.0, *map(largest, expected))
    for index, (a, e) in enumerate(zip(found, expected, strict=True)):
        rtol = _GRADIENT_RTOL.get(e.dtype, 1e-2)
        if a.shape != e.shape or a.dtype != e.dtype:
            raise CompatError(
                f"{sample}: {how}, gradient {index} is {a.dtype} {tuple(a.shape)}, that of backward() is {e.dtype} "
                f"{tuple(e.shape)}"
            )
        differ = ~((a - e).abs() <= rtol * (e.abs() + size)) & ~(a.isnan() & e.isnan()) & (a != e)
        if bool(differ.any()):
            at = tuple(int(i) for i in differ.nonzero()[0])
            raise CompatError(
                f"{sample}: {how}, gradient {index} at {at} is {a[at].item():.6g}, that of backward() is "
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
