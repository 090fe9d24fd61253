"""The inputs and outputs of a model, the models and cases that the parts of register take, and the dynamic axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from opmatrix.declaration.load import Operator
from opmatrix.signature.signature import attribute_values, is_composed
from opmatrix.sizes.known import Known
from opmatrix.sizes.rules import axes, computes, expressions
from opmatrix.sizes.variadic import Item, of_model
from opmatrix.spec import Case, FromVectors, Input, Model, Nested, OpSpec, Output, Random, Tensor, shape_of, tensors_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GraphInput:
    """One tensor of a case: its input (the `index`-th of a variadic one), its name in the graph, its description. An
    absent optional input has none."""

    part: Input
    index: int
    name: str
    tensor: Tensor


def graph_inputs(spec: OpSpec, model: Model, case: Case) -> tuple[GraphInput, ...]:
    """Return the tensors of a case, in the order of the model's inputs."""
    return tuple(
        GraphInput(part=part, index=index, name=graph_name(model, part, index), tensor=tensor)
        for part in spec.inputs
        for index, tensor in enumerate(tensors_of(case, part.name))
    )


def graph_name(model: Model, part: Input, index: int = 0) -> str:
    """Return the name of an input's tensor in the model's graph: ``x``, or ``others_1`` for a variadic one."""
    name = model.names.get(part.name, part.name)
    return f"{name}_{index}" if part.variadic else name


def node_inputs(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the node's inputs: "" for an absent one, not at the end unless variadic, as onnx's checker requires."""
    case = model.cases[0]
    names: list[str] = []
    for part in spec.inputs:
        tensors = tensors_of(case, part.name)
        names += [graph_name(model, part, index) for index in range(len(tensors))]
        names += [""] if part.optional and not tensors else []
    while names and not names[-1] and not any(part.variadic for part in spec.inputs):
        names.pop()
    return tuple(names)


def graph_outputs(spec: OpSpec, model: Model) -> tuple[Output, ...]:
    """Return the outputs that a model has, without optional ones that its node leaves out."""
    return tuple(part for part in of_model(spec, model).outputs if part.name not in model.absent)


def output_name(model: Model, part: Output) -> str:
    """Return the name of an output in the model's graph: ``y``, or ``parts_1`` for a tensor of a variadic one."""
    if isinstance(part, Item):
        return f"{model.names.get(part.of, part.of)}_{part.index}"
    return model.names.get(part.name, part.name)


def output_names(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the name of each output of the operator, as in the model's graph where it has it."""
    return tuple(output_name(model, part) for part in of_model(spec, model).outputs)


def node_outputs(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the node's outputs: "" for one that is left out, not at the end."""
    parts = of_model(spec, model).outputs
    names = ["" if part.name in model.absent else output_name(model, part) for part in parts]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def present(spec: OpSpec, model: Model, outputs: Sequence[T]) -> tuple[T, ...]:
    """Return those of the operator's outputs that a model has."""
    parts = of_model(spec, model).outputs
    return tuple(o for part, o in zip(parts, outputs, strict=True) if part.name not in model.absent)


def arguments(spec: OpSpec, flat: Sequence[T | None]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from the values of a node's inputs: None for an absent one, a tuple for a variadic
    one, which ONNX has last."""
    values = iter(flat)
    for part in spec.inputs:
        yield tuple(v for v in values if v is not None) if part.variadic else next(values, None)


def case_arguments(spec: OpSpec, case: Case, fed: Sequence[T]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from values in the order of `graph_inputs`."""
    values = iter(fed)
    for part in spec.inputs:
        taken = tuple(next(values) for _ in tensors_of(case, part.name))
        yield taken if part.variadic else next(iter(taken), None)


_SMALL = 1000  # elements
_FARTHEST = 50  # deviations from the mean: no number is drawn beyond


def samples(operator: Operator) -> Iterator[tuple[Model, Case, tuple[int, ...]]]:
    """Yield the first small, finite case of each combination of dtypes and numbers of tensors of the inputs, with these
    numbers: what opcheck runs, which fails if an output is NaN. The description decides, so no value is computed."""
    found = set()
    for model in operator.models:
        for case in model.cases:
            counts = tuple(len(tensors_of(case, i.name)) for i in operator.spec.inputs)
            key = (tuple(model.types.items()), counts)
            if key not in found and is_small_and_finite(case):
                found.add(key)
                yield model, case, counts


def sampled(operator: Operator) -> tuple[Model, ...]:
    """Return the models of the samples and the first ones of their dtypes, with their samples and first cases alone:
    the parts "schema" and "nodes" use no others, and the plan makes their keys of these. "schema" calls an operator
    that others call by another one, which writes arguments or has generators, with every case."""
    if is_composed(operator.spec):
        return operator.models
    chosen = [(model.name, case.name) for model, case, _ in samples(operator)]
    seen = set[tuple[tuple[str, str], ...]]()
    made = []
    for model in operator.models:
        types = tuple(model.types.items())
        first, *others = model.cases
        kept = [case for case in others if (model.name, case.name) in chosen]
        if kept or (model.name, first.name) in chosen or types not in seen:
            made.append(replace(model, cases=(first, *kept)))
        seen.add(types)
    return tuple(made)


def shaped(operator: Operator) -> tuple[Model, ...]:
    """Return the models with all cases, which have shapes but no values: "schema" compares the shapes that torch and
    ONNX infer, where sizes of an output are computed."""
    if not computes(operator.spec):
        return ()

    def without_values(tensors: Tensor | tuple[Tensor, ...] | None) -> FromVectors | tuple[FromVectors, ...] | None:
        if isinstance(tensors, tuple):
            return tuple(FromVectors(shape=shape_of(one)) for one in tensors)
        return FromVectors(shape=shape_of(tensors)) if tensors else None

    def shaped_case(case: Case) -> Case:
        return Case(name=case.name, inputs={n: without_values(tensors) for n, tensors in case.inputs.items()})

    return tuple(replace(model, cases=tuple(map(shaped_case, model.cases))) for model in operator.models)


def is_small_and_finite(case: Case) -> bool:
    """Return whether each tensor of a case has 1 to 1000 elements, and by its description finite values alone."""
    return all(_is_usable(tensor) for name in case.inputs for tensor in tensors_of(case, name))


def _is_usable(tensor: Tensor) -> bool:
    if isinstance(tensor, FromVectors) or not 0 < math.prod(shape_of(tensor)) <= _SMALL:
        return False
    if isinstance(tensor, Random):
        numbers = (abs(tensor.mean) + _FARTHEST * abs(tensor.deviation), *tensor.specials.values())
        return all(map(math.isfinite, numbers))
    return _is_finite(tensor.values)


def _is_finite(values: Nested) -> bool:
    if isinstance(values, tuple):
        return all(map(_is_finite, values))
    return not isinstance(values, float) or math.isfinite(values)


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
    """Return what torch.export must know of the dynamic axes whose sizes are computed, or others from them, by name.

    It adds guards to sizes that are computed: one of 1 would be another program. So it gets the range of each axis in
    which every computed size is 2 or more. The exported model has no such range.
    """
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
        sizes: dict[str, int] = {}
        for feed in graph_inputs(self.spec, self.model, self.model.cases[0]):
            shape = shape_of(feed.tensor)
            for name, size in zip(self.model.dynamic.get(feed.part.name, ()), shape, strict=False):
                if name is not None:
                    sizes.setdefault(name, size)
        return sizes

    def call_sizes(self, sizes: Mapping[str, int]) -> Known:
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
            values = [self.call_sizes(self.sizes | {other: size + step}).size(dim) for step in range(3)]
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
        known, before = self.call_sizes(sizes), self.call_sizes(self.sizes)
        try:
            both = [(known.output(output) or [], before.output(output) or []) for output in self.spec.outputs]
        except ValueError:
            return False
        changed = [now for sizes in both for now, then in zip(*sizes, strict=True) if now != then]
        return all(isinstance(now, int) and now >= 2 for now in changed)
