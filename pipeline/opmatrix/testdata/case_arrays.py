"""The input arrays of a case, and the attributes that reference.py is called with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.torch_signature import as_float32, attribute_values, dtype_of
from opmatrix.declaration.value_rules import known_numbers, ruled_inputs
from opmatrix.errors import DataError
from opmatrix.spec import AttributeValue, Case, Model, OpSpec, Random, given, shape_of
from opmatrix.testdata import arrays, rule_check
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.ruled_values import random_values


def case_arrays(spec: OpSpec, model: Model, case: Case) -> list[Array]:
    """Return one array per tensor of a case, as in its data set. Raises DataError for a wrong description.

    Random values obey the rules of their inputs; other values must.
    """
    found = []
    fed = graph_inputs(spec, model, case)
    numbers: dict[str, float] = {}
    if any(True for _ in ruled_inputs(spec)):
        numbers = known_numbers(spec, [(f.part, shape_of(f.tensor)) for f in fed], model.attributes)
    for feed in fed:
        # The seed has the declared name, not that of the graph: `Model.names` may rename an input and keep its values.
        name = f"{feed.part.name}_{feed.index}" if feed.part.variadic else feed.part.name
        try:
            seed = arrays.seed_of(spec.name, case.name, name)
            dtype, rule = dtype_of(feed.part.type, model.types), feed.part.values
            if rule is not None and isinstance(feed.tensor, Random):
                made = random_values(feed.tensor, rule, numbers, dtype, seed_of=seed)
            else:
                made = arrays.array(feed.tensor, dtype, seed_of=seed)
            if rule is not None and (why := rule_check.problem(spec, feed.part, numbers, made)):
                raise DataError(why)
            found.append(made)
        except DataError as error:
            raise DataError(f"input {name!r}: {error}") from error
    return found


def elements(case: Case) -> list[int]:
    """Return the number of elements of each tensor of a case."""
    return [math.prod(shape_of(tensor)) for name in case.inputs for tensor in given(case, name)]


def small_and_finite(found: Sequence[Array], *, elements: int) -> bool:
    """Return whether every array has 1 to `elements` elements, all finite."""
    return all(0 < array.size <= elements and bool(np.isfinite(array).all()) for array in found)


def reference_attributes(spec: OpSpec, model: Model) -> dict[str, AttributeValue]:
    """Return every attribute of a model by its ONNX name, floats rounded to float32 as in ONNX."""
    values = attribute_values(spec, model)
    return {a.name: as_float32(a, values[a.name]) for a in spec.attributes if a.name in values}
