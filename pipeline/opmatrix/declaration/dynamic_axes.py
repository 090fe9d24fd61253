"""What torch.export must know of the dynamic axes of a model: their relations, and the range that it may assume.

torch.export adds guards to sizes that are computed: one of 1 would be another program. So it gets the range of each
axis in which every computed size is 2 or more. The exported model has no such range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opmatrix.declaration.declared_sizes import expressions
from opmatrix.declaration.known_sizes import Known
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.size_rules import axes
from opmatrix.declaration.torch_signature import attribute_values
from opmatrix.spec import Model, OpSpec, shape_of

AHEAD = 64  # sizes above that of the first case which are tried; if all are allowed, there is no greatest one


@dataclass(frozen=True, kw_only=True)
class DynamicAxis:
    """One name of `Model.dynamic`: its range, or the name whose size times `factor` plus `offset` it is."""

    minimum: int | None = None
    maximum: int | None = None
    of: str | None = None
    factor: int = 1
    offset: int = 0


def dynamic_axes(spec: OpSpec, model: Model) -> dict[str, DynamicAxis]:
    """Return the dynamic axes whose sizes are computed, or others from them, by name."""
    if all(isinstance(dim, int) or dim.isidentifier() for dim in expressions(spec)):
        return {}
    traced = _Traced(spec=spec, model=model)
    derived = {name: found for name in traced.sizes if (found := traced.derived(name))}
    roots = {name: traced.limited(name, derived) for name in traced.sizes if name not in derived}
    return derived | {name: found for name, found in roots.items() if found is not None}


@dataclass(frozen=True, kw_only=True)
class _Traced:
    """The shapes of the first case, in which dynamic axes can have other sizes."""

    spec: OpSpec
    model: Model

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each dynamic axis."""
        found: dict[str, int] = {}
        for feed in graph_inputs(self.spec, self.model, self.model.cases[0]):
            shape = shape_of(feed.tensor)
            for name, size in zip(self.model.dynamic.get(feed.part.name, ()), shape, strict=False):
                if name is not None:
                    found.setdefault(name, size)
        return found

    def known(self, sizes: Mapping[str, int]) -> Known:
        """Return the sizes of a call in which the dynamic axes have these."""
        shapes: dict[str, Sequence[int]] = {}
        for feed in graph_inputs(self.spec, self.model, self.model.cases[0]):
            shape = shape_of(feed.tensor)
            names = self.model.dynamic.get(feed.part.name, (None,) * len(shape))
            changed = [size if name is None else sizes[name] for name, size in zip(names, shape, strict=True)]
            shapes.setdefault(feed.part.name, changed)
        return Known(spec=self.spec, shapes=shapes, attributes=attribute_values(self.spec, self.model))

    def derived(self, name: str) -> DynamicAxis | None:
        """Return how an axis follows from another dynamic one, if its declared size is an expression of that."""
        for part in self.spec.inputs:
            names = self.model.dynamic.get(part.name, ())
            for at, dim in axes(part):
                if not -len(names) <= at < len(names) or names[at] != name:
                    continue
                if isinstance(dim, int) or dim.isidentifier():
                    return None
                return next((found for other in self.sizes if (found := self._line(dim, other, name))), None)
        return None

    def _line(self, dim: str, other: str, name: str) -> DynamicAxis | None:
        """Return the line through three values of an expression, or None if it depends on `other` in another way."""
        if other == name:
            return None
        size = self.sizes[other]
        try:
            values = [self.known(self.sizes | {other: size + step}).size(dim) for step in range(3)]
        except ValueError:
            return None
        first, second, third = (value if isinstance(value, int) else 0 for value in values)
        factor = second - first
        if factor <= 0 or third - second != factor:
            return None
        return DynamicAxis(of=other, factor=factor, offset=first - factor * size)

    def limited(self, name: str, derived: Mapping[str, DynamicAxis]) -> DynamicAxis | None:
        """Return the range around the traced size in which every computed size is 2 or more; None: every size is."""
        size = self.sizes[name]
        low = next((n + 1 for n in range(size - 1, 1, -1) if not self._is_plain(name, n, derived)), 2)
        high = next((n - 1 for n in range(size + 1, size + AHEAD) if not self._is_plain(name, n, derived)), None)
        return None if low == 2 and high is None else DynamicAxis(minimum=low, maximum=high)

    def _is_plain(self, name: str, size: int, derived: Mapping[str, DynamicAxis]) -> bool:
        sizes = self.sizes | {name: size}
        sizes |= {n: sizes[a.of] * a.factor + a.offset for n, a in derived.items() if a.of == name}
        known, before = self.known(sizes), self.known(self.sizes)
        try:
            both = [(known.output(output) or [], before.output(output) or []) for output in self.spec.outputs]
        except ValueError:
            return False
        changed = [now for sizes in both for now, then in zip(*sizes, strict=True) if now != then]
        return all(isinstance(now, int) and now >= 2 for now in changed)
