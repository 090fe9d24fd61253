"""What the parts of register that start the exporters take of an operator's models: a case more seldom changes it.

The parts run with these models alone, and the plan makes their keys of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from opmatrix.declaration.declared_sizes import computes
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import is_composed
from opmatrix.spec import Case, FromVectors, Model, Nested, Random, Tensor, given, shape_of

_SMALL = 1000  # elements
_FARTHEST = 50  # deviations from the mean: no number is drawn beyond


def samples(operator: Operator) -> Iterator[tuple[Model, Case, tuple[int, ...]]]:
    """Yield the first small, finite case of each combination of dtypes and numbers of tensors of the inputs, with these
    numbers: what opcheck runs, which fails if an output is NaN. The description decides, so no value is computed."""
    found = set()
    for model in operator.models:
        for case in model.cases:
            counts = tuple(len(given(case, i.name)) for i in operator.spec.inputs)
            key = (tuple(model.types.items()), counts)
            if key not in found and is_small_and_finite(case):
                found.add(key)
                yield model, case, counts


def sampled(operator: Operator) -> tuple[Model, ...]:
    """Return the models of the samples and the first ones of their dtypes, with their samples and first cases alone:
    the parts "schema" and "nodes" use no others. "schema" calls an operator that others call by another one, which
    writes arguments or has generators, with every case."""
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
    return tuple(replace(model, cases=tuple(map(_shaped, model.cases))) for model in operator.models)


def _shaped(case: Case) -> Case:
    """Return a case of the same shapes, with values that no one may use."""
    inputs = {
        name: tuple(map(_empty, tensors)) if isinstance(tensors, tuple) else tensors and _empty(tensors)
        for name, tensors in case.inputs.items()
    }
    return Case(name=case.name, inputs=inputs)


def _empty(tensor: Tensor) -> FromVectors:
    return FromVectors(shape=shape_of(tensor))


def is_small_and_finite(case: Case) -> bool:
    """Return whether each tensor of a case has 1 to 1000 elements, and by its description finite values alone."""
    return all(_is_usable(tensor) for name in case.inputs for tensor in given(case, name))


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
