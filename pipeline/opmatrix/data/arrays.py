"""Make NumPy arrays from the tensors that cases.py describes, in NumPy's dtypes of the declared ones. Large arrays are
made and read in blocks, so that intermediate ones take little memory."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opmatrix.basics.errors import DataError
from opmatrix.project.dtypes import FLOAT8, FOUR_BITS
from opmatrix.spec import DType, FromVectors, Nested, Random, Scalar, Tensor, shape_of

BLOCK = 1 << 16
"""Elements of a block. An array of no more is computed at once."""


def slices(size: int) -> Iterator[slice]:
    """Yield the slices of the blocks of so many elements."""
    return (slice(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK))


def flat(array: NDArray[Any]) -> NDArray[Any]:
    """Return what has the elements in C order by slices. Those of a large array with other strides are copies, all
    others are views."""
    return array.ravel() if array.size <= BLOCK or array.flags.c_contiguous else array.flat  # type: ignore[return-value]  # a flatiter has slices


def parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the blocks of an array."""
    values = flat(array)
    return (values[block] for block in slices(array.size))


SMALL: tuple[DType, ...] = ("bfloat16", *FLOAT8)
"""The floating dtypes that ml_dtypes adds to NumPy."""


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype: object for strings, ml_dtypes' for bfloat16, float8 and int4, as in the onnx package."""
    return np.dtype("O" if dtype == "string" else dtype)


def is_float(dtype: str | np.dtype[Any]) -> bool:
    """Return whether a dtype is a floating one; the kind of ml_dtypes' is "V", of float8_e5m2 "f"."""
    return str(dtype).startswith(("float", "bfloat"))


@functools.cache  # NumPy builds the name of a dtype anew each time, in 10 us
def kind(dtype: np.dtype[Any]) -> str:
    """Return NumPy's kind of a dtype: "i" for int4 and "u" for uint4, whose own one is "V"."""
    return str(dtype)[0] if str(dtype) in FOUR_BITS else dtype.kind


def integer_limits(dtype: str | np.dtype[Any]) -> Any:
    """Return the limits of an integer dtype, as numpy.iinfo does for those of NumPy."""
    return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it


def float_limits(dtype: str | np.dtype[Any]) -> Any:
    """Return the limits of a floating dtype, as numpy.finfo does for those of NumPy."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types for it


def has_infinity(dtype: DType) -> bool:
    """Return whether a floating dtype has infinities: of float8, only e5m2 has."""
    return not dtype.startswith("float8") or dtype == "float8_e5m2"


def is_small(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of `SMALL`, which NumPy's own functions do not know. Their kind is "V" or "f"."""
    return kind(dtype) == "V" or (dtype.kind == "f" and dtype.itemsize == 1)


def rounded(values: NDArray[Any], dtype: np.dtype[Any], *, copy: bool = True) -> NDArray[Any]:
    """Return values in another dtype, rounded once. Without `copy`, those that have it already are returned.

    ml_dtypes rounds float64 to float32 first, and so twice. An odd last bit of that float32 keeps what was cut off.
    """
    if not is_small(dtype) or values.dtype.kind != "f" or values.dtype.itemsize <= 4:
        return values.astype(dtype, order="C", copy=copy)
    if values.size > BLOCK:
        made, wide = np.empty(values.size, dtype), flat(values)
        for block in slices(values.size):
            made[block] = rounded(wide[block], dtype)
        return made.reshape(values.shape)
    narrow = values.astype(np.float32, order="C")
    away = np.where(narrow < values, np.float32(np.inf), np.float32(-np.inf))
    odd = np.where(narrow.view(np.uint32) & 1, narrow, np.nextafter(narrow, away))
    return np.where((narrow == values) | np.isnan(narrow), narrow, odd).astype(dtype)


Array = NDArray[Any]

_LETTERS = "abcdeABC  ,.-019äß€😀"  # of random strings: of one to four bytes in UTF-8


def dtype_name(array: Array) -> str:
    """Return the array's dtype as a declaration names it."""
    return _name(array.dtype)


@functools.cache  # for the same reason as `kind`
def _name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype == np.object_ else str(dtype)


def raw_bytes(array: Array) -> memoryview:
    """Return the bytes of an array of numbers in C order, of a contiguous one without a copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def reversed_copy(array: Array) -> Array:
    """Return an array whose values have the reverse order."""
    return np.ascontiguousarray(array.ravel()[::-1]).reshape(array.shape)


def seed_of(operator: str, case: str, input: str) -> str:
    """Return the seed of one input; so a new case or input does not change the values of the others."""
    return f"{operator}/{case}/{input}"


def array(tensor: Tensor, dtype: DType, *, seed_of: str) -> Array:
    """Return the values of `tensor` as a contiguous array, for every memory layout.

    Random values are normally distributed; integers are rounded, unsigned ones around a mean from 0 on are absolute
    values, those of int4 and uint4 are clipped to their range, a bool is True above the mean, and a string has up to
    eight characters. Raises DataError for ragged values,
    a special out of range, or a value that `dtype` cannot hold.
    """
    shape = shape_of(tensor)
    if isinstance(tensor, FromVectors):
        raise DataError("its values are in the file of the case's `expected`, which only the stage data reads")
    if not isinstance(tensor, Random):
        return _fit(list(_flatten(tensor.values, shape)), dtype).reshape(shape)
    size = math.prod(shape)
    if dtype == "string":
        made = _words(size, seed_of)
    else:
        made, random = np.empty(size, numpy_dtype(dtype)), _generator(seed_of)
        for block in slices(size):  # numbers of a generator are the same, however many it gives at once
            made[block] = _from_normal(random.standard_normal(block.stop - block.start), tensor, dtype)
    return with_specials(made, tensor, dtype).reshape(shape)


def with_specials(values: Array, tensor: Random, dtype: DType) -> Array:
    """Put the specials of a tensor into its flat values; return these. Raises DataError as `array` does."""
    for index, special in tensor.specials.items():
        if not 0 <= index < values.size:
            raise DataError(
                f"special at flat index {index}, allowed: 0 to {values.size - 1}; the tensor has {values.size} elements"
            )
        values[index] = _fit([special], dtype)[0]  # in its own dtype: float64 cannot represent 2**63 - 1
    return values


def standard_normal(shape: tuple[int, ...], seed_of: str) -> Array:
    """Return normally distributed float64 values for a shape, flat, in C order."""
    return _generator(seed_of).standard_normal(math.prod(shape))


def _generator(seed_of: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(seed_of.encode()).digest())))


def _from_normal(normal: Array, tensor: Random, dtype: DType) -> Array:
    if dtype == "bool":
        return normal > 0
    values, of_kind = tensor.mean + tensor.deviation * normal, kind(numpy_dtype(dtype))
    if of_kind not in "iu":
        return _cast_drawn(values, tensor, dtype)
    whole = np.abs(np.rint(values)) if of_kind == "u" and tensor.mean >= 0 else np.rint(values)
    if dtype in FOUR_BITS:
        limits = integer_limits(dtype)
        whole = np.clip(whole, limits.min, limits.max)
    return _cast_drawn(whole, tensor, dtype)


def _cast_drawn(values: Array, tensor: Random, dtype: DType) -> Array:
    try:
        return cast(values, dtype)
    except DataError as error:
        drawn = f"mean={tensor.mean:g} and deviation={tensor.deviation:g}"
        raise DataError(f"{error}, and is drawn with {drawn}: choose others, such as a smaller deviation") from error


def _words(count: int, seed_of: str) -> Array:
    random = _generator(seed_of)
    letters, ends = random.choice(list(_LETTERS), 8 * count), np.cumsum(random.integers(0, 9, count))
    joined = "".join(letters)
    words = np.empty(count, numpy_dtype("string"))
    words[:] = [joined[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if count else []
    return words


def _flatten(values: Nested, shape: tuple[int, ...]) -> Iterator[Scalar]:
    """Yield the scalars in C order. Raises DataError for ragged values."""
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
    """Return Python scalars as an array of `dtype`. Raises DataError for a scalar of another kind: a bool is no int."""
    kind: type | tuple[type, ...] = {"bool": bool, "string": str}.get(dtype, (int, float))
    for value in values:
        if not isinstance(value, kind) or (isinstance(value, bool) and dtype != "bool"):
            raise DataError(f"{value!r} is no {dtype}")
    if dtype == "string" and (found := next((v for v in values if not is_text(v)), None)) is not None:
        raise DataError(f"{found!a} is not a string of ONNX: UTF-8 cannot encode it")
    if dtype in ("bool", "string"):
        return np.array(values, numpy_dtype(dtype))
    return cast(np.array(values, np.longdouble), dtype)


def is_text(value: object) -> bool:
    """Return whether a value is a string that UTF-8 can hold, as ONNX requires: a lone surrogate cannot."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def cast(values: Array, dtype: DType) -> Array:
    """Cast values. Raises DataError for one out of range, and for one that is no integer where `dtype` is."""
    with np.errstate(all="ignore"):
        converted = rounded(values, numpy_dtype(dtype))
        if kind(converted.dtype) in "iu":
            # longdouble represents every int64 and uint64 on x86-64. The range is compared too, since a cast beyond it
            # is undefined and may return the same value.
            bounds, wide = integer_limits(converted.dtype), values.astype(np.longdouble)
            in_range = (wide >= bounds.min) & (wide <= np.longdouble(str(bounds.max)))
            lost = ~in_range | (converted.astype(np.longdouble) != wide)
        else:
            lost = ~np.isnan(values) & (np.isnan(converted) | (np.isfinite(values) & np.isinf(converted)))
    if lost.any():
        raise DataError(f"{values[lost][0]!s} does not fit {dtype}")
    return converted
