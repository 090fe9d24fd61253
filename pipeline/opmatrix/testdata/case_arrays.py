"""The input arrays of a case, and the attributes that reference.py is called with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opmatrix.declaration.model_inputs import GraphInput, graph_inputs
from opmatrix.declaration.torch_signature import as_float32, attribute_values, dtype_of
from opmatrix.errors import DataError
from opmatrix.spec import AttributeValue, Case, FromVectors, Model, OpSpec, given, shape_of
from opmatrix.testdata import arrays
from opmatrix.testdata.arrays import Array


def case_arrays(spec: OpSpec, model: Model, case: Case) -> list[Array]:
    """Return one array per tensor of a case, as in its data set. Raises DataError for a wrong description."""
    return [case_array(spec, model, case, feed) for feed in graph_inputs(spec, model, case)]


def case_array(spec: OpSpec, model: Model, case: Case, feed: GraphInput) -> Array:
    """Return the values of one tensor of a case. Raises DataError for a wrong description."""
    # The seed has the declared name, not that of the graph: `Model.names` may rename an input and keep its values.
    name = f"{feed.part.name}_{feed.index}" if feed.part.variadic else feed.part.name
    try:
        seed = arrays.seed_of(spec.name, case.name, name)
        return arrays.array(feed.tensor, dtype_of(feed.part.type, model.types), seed_of=seed)
    except DataError as error:
        raise DataError(f"input {name!r}: {error}") from error


def described(case: Case) -> bool:
    """Return whether cases.py has all values of a case, so that no file is read for them."""
    return not any(isinstance(tensor, FromVectors) for name in case.inputs for tensor in given(case, name))


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
