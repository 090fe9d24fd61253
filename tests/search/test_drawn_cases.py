"""Generated cases include every kind of input that is hard for a kernel, wherever the declaration allows it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from opmatrix.data.arrays import float_limits, is_float
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.models import graph_inputs
from opmatrix.project.paths import Paths
from opmatrix.search import draw_models
from opmatrix.signature.signature import dtype_of, dtype_tuples
from opmatrix.spec import Input, Model, tensors_of
from opmatrix.spec import MemoryLayout as Strides

OPERATORS = load_operators(Paths(Path(__file__).parents[2]))
PRIMES = (3, 5, 7, 13, 31)


def sizes(array: Any) -> Iterator[str]:
    if array.ndim == 0:
        yield "0-d"
    for size in array.shape:
        yield f"size {size}" if size < 3 else "a prime size" if size in PRIMES else "another size"


def _is_far(array: Any) -> bool:
    """Return whether all values are finite, and their mean is far from 0 for how they differ."""
    with np.errstate(over="ignore"):  # of huge numbers with both signs
        return array.size > 1 and bool(np.isfinite(array).all() and np.abs(array).min() > 100 * np.ptp(array))


def numbers(array: Any) -> Iterator[str]:
    """Yield the kinds of values in an array, with its dtype."""
    dtype = array.dtype
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        found = {"smallest": array == limits.min, "largest": array == limits.max}
    elif is_float(dtype):
        limits, array = float_limits(dtype), array.astype(np.promote_types(dtype, np.float32))
        size = np.abs(array)
        found = {
            "NaN": np.isnan(array),
            "infinity": np.isposinf(array),
            "-infinity": np.isneginf(array),
            "denormal": (size > 0) & (size < limits.tiny),
            "-0.0": (array == 0) & np.signbit(array),
            "huge": (size > math.sqrt(limits.max) / 100) & np.isfinite(array),
            "tiny": (size > 0) & (size < math.sqrt(limits.tiny) * 10),
            "a mean far from 0": np.atleast_1d(_is_far(array)),
        }
    else:
        found = {str(value): array == value for value in (True, False)}
    return (f"{what} in {dtype}" for what, where in found.items() if where.any())


def kinds(operator: Operator, model: Model) -> Iterator[str]:
    """Yield every kind of input in one generated model."""
    (case,) = model.cases
    spec = operator.spec
    yield " ".join(model.types.values())
    for part in spec.inputs:
        if part.optional or part.variadic:
            yield f"{part.name} {len(tensors_of(case, part.name))} times"
    for feed, array in zip(graph_inputs(spec, model, case), case_arrays(spec, model, case), strict=True):
        if has_shapes(feed.part):
            yield f"{feed.tensor.layout} in {feed.part.name}"
            yield from (f"{kind} in {feed.part.name}" for kind in sizes(array))
            yield from numbers(array)


def has_shapes(part: Input) -> bool:
    """Return whether any shape in the declaration is open: a parameter of one element has no strides."""
    return part.dims is None or any(not isinstance(d, int) for d in part.dims)


def legal(operator: Operator) -> Iterator[str]:
    """Yield every kind that a declaration allows."""
    spec = operator.spec
    yield from (" ".join(types.values()) for types in dtype_tuples(spec))
    for part in spec.inputs:
        if part.optional or part.variadic:
            yield from (f"{part.name} {n} times" for n in ((0, 1) if part.optional else (1, 2, 3)))
        if not has_shapes(part):
            continue
        dtypes = {dtype_of(part.type, types) for types in dtype_tuples(spec)}
        for layout in get_args(Strides):
            if dtypes != {"bool"} or layout != "expanded":  # random bools have no axis along which all are equal
                yield f"{layout} in {part.name}"
        for size in ("size 0", "size 1", "size 2", "a prime size"):
            yield f"{size} in {part.name}"
        if part.dims is None:
            yield f"0-d in {part.name}"
        for dtype in dtypes:
            if dtype == "bool":
                yield from ("True in bool", "False in bool")
            elif is_float(dtype):
                kinds = ["NaN", "infinity", "-infinity", "denormal", "-0.0", "huge", "tiny"]
                # Two bytes have too few digits for another number of the same size.
                kinds += ["a mean far from 0"] if dtype in ("float32", "float64") else []
                yield from (f"{kind} in {dtype}" for kind in kinds)
            else:
                yield from (f"{kind} in {dtype}" for kind in ("smallest", "largest"))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_allowed_kind_is_generated(operator: Operator, tmp_path: Path) -> None:
    drawn = draw_models.collect(operator, examples=draw_models.enough(operator.spec), home=tmp_path)
    found = {kind for model in drawn for kind in kinds(operator, model)}
    assert {*legal(operator)} - found == set()


def test_generated_cases_are_reproducible(tmp_path: Path) -> None:
    """A failure must repeat, on every machine and with any other imports in the process."""
    operator = next(o for o in OPERATORS if o.name == "nms")
    first, second = (draw_models.collect(operator, examples=50, home=tmp_path) for _ in range(2))
    assert [m.name for m in first] == [m.name for m in second]
    assert first == second
