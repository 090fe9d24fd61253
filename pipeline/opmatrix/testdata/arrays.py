"""NumPy arrays from the tensors that a case describes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opmatrix.errors import DataError
from opmatrix.spec import DType, Nested, Random, Scalar, Tensor, shape_of
from opmatrix.testdata.dtypes import numpy_dtype

Array = NDArray[Any]


def dtype_name(array: Array) -> str:
    """Return the name that a declaration has for the dtype of `array`."""
    return _name(array.dtype)


@functools.cache  # NumPy puts the name together anew each time, in 10 us
def _name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype == np.object_ else str(dtype)


def seed_of(operator: str, case: str, input: str) -> str:
    """Return the text that seeds one input: a new case or input leaves the numbers of all others as they are."""
    return f"{operator}/{case}/{input}"


def array(tensor: Tensor, dtype: DType, *, seed_of: str) -> Array:
    """Return the numbers of `tensor`, contiguous, whatever its layout.

    A random integer is the nearest one to a normally distributed number, a random bool says whether that is above
    the mean. Raises DataError for a ragged tensor, a special out of range, and a number that `dtype` cannot hold.
    """
    shape = shape_of(tensor)
    if isinstance(tensor, Random):
        numbers = _draw(tensor, dtype, seed_of)
        # A special is put in as the dtype's own value: an int64 of 2**63 - 1 would not survive a float64.
        for index, special in _checked(tensor.specials, numbers.size).items():
            numbers[index] = _fit([special], dtype)[0]
    else:
        numbers = _fit(list(_flatten(tensor.values, shape)), dtype)
    return numbers.reshape(shape)


def _draw(tensor: Random, dtype: DType, seed_of: str) -> Array:
    if dtype == "string":
        raise DataError("no random tensor of strings; give them by Values")
    seed = int.from_bytes(hashlib.sha256(seed_of.encode()).digest())
    normal = np.random.Generator(np.random.PCG64(seed)).standard_normal(int(np.prod(tensor.shape, dtype=np.int64)))
    if dtype == "bool":
        return normal > 0
    numbers = tensor.mean + tensor.deviation * normal
    if numpy_dtype(dtype).kind in "iu":
        numbers = np.rint(numbers)
    return _cast(numbers, dtype)


def _checked(specials: Mapping[int, float], size: int) -> Mapping[int, float]:
    for index in specials:
        if not 0 <= index < size:
            raise DataError(f"special at flat index {index}, allowed: 0 to {size - 1}; the tensor has {size} elements")
    return specials


def _flatten(values: Nested, shape: tuple[int, ...]) -> Iterator[Scalar]:
    """Yield the scalars in C order. Raises DataError where `values` has not `shape` all the way down."""
    if not isinstance(values, tuple):
        if shape:
            raise DataError(f"ragged values: found the number {values!r} where {shape[0]} are expected")
        yield values
        return
    if len(shape) == 0 or len(values) != shape[0]:
        wanted = f"{shape[0]} values" if shape else "one number"
        raise DataError(f"ragged values: found {len(values)} values where {wanted} stood before")
    for value in values:
        yield from _flatten(value, shape[1:])


def _fit(values: list[Scalar], dtype: DType) -> Array:
    """Return Python numbers as an array of `dtype`; a bool is no number, and a number no bool."""
    kind: type | tuple[type, ...] = {"bool": bool, "string": str}.get(dtype, (int, float))
    for value in values:
        if not isinstance(value, kind) or (isinstance(value, bool) and dtype != "bool"):
            raise DataError(f"{value!r} is no {dtype}")
    if dtype in ("bool", "string"):
        return np.array(values, numpy_dtype(dtype))
    return _cast(np.array(values, np.longdouble), dtype)


def _cast(numbers: Array, dtype: DType) -> Array:
    """Cast numbers. Raises DataError for the first that `dtype` cannot hold: rounding is no loss, but in an integer."""
    with np.errstate(all="ignore"):
        made = numbers.astype(numpy_dtype(dtype))
        lost = np.isfinite(numbers) & ~np.isfinite(made) if made.dtype.kind not in "iu" else _inexact(numbers, made)
    if lost.any():
        raise DataError(f"{numbers[lost][0]!s} does not fit {dtype}")
    return made


def _inexact(numbers: Array, integers: Array) -> Array:
    """Return where a cast to integers lost something; NaN and infinities are no integers."""
    # longdouble holds every int64 and uint64 on x86-64; the bounds are compared first, as a cast beyond them is
    # undefined and may come back as the same number.
    bounds = np.iinfo(integers.dtype)
    wide = numbers.astype(np.longdouble)
    inexact: Array = ~((wide >= bounds.min) & (wide <= np.longdouble(str(bounds.max)))) | (
        integers.astype(np.longdouble) != wide
    )
    return inexact
