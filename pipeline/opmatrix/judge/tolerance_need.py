"""The tolerance that measured errors and the conditioning of an operator call for."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import compare
from opmatrix.data.reference import FLOATS, Argument, Precision, Reference, widened
from opmatrix.spec import AttributeValue, Tolerance

MARGIN = 4  # times the largest measured error: other inputs than those of the cases round otherwise
LOOSE = 100  # times what is called for is loose
PIECES = 8  # of each input, moved one after the other


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The largest errors of one output. `scaled`: the absolute error as a part of ``scale + |expected|``, see `scale`.

    All are 0 for equal values, inf where only one side is NaN or infinite, or where dtype or shape differ.
    """

    error: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    tolerance_used: float = 0.0
    scaled: float = 0.0

    def __or__(self, other: Measured) -> Measured:
        """Return the larger of each."""
        return Measured(**{name: max(value, getattr(other, name)) for name, value in vars(self).items()})


def scale(outputs: Sequence[Array]) -> float:
    """Return the size to which an absolute tolerance is related: that of the largest finite value, at most 1."""
    return min(1.0, max((float(np.max(_size(o), initial=0.0)) for o in outputs), default=0.0)) or 1.0


def measure(actual: Array, expected: Array, *, tolerance: Tolerance, scale: float) -> Measured:
    """Return the errors of one output of one case."""
    found = compare(actual, expected, tolerance=tolerance)
    if found.problem or math.isinf(found.error) or expected.dtype == np.object_:
        return Measured() if found.ok else Measured(**dict.fromkeys(vars(Measured()), math.inf))
    size = _size(expected)
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        error = np.where(np.isfinite(expected.astype(np.float64)), error, 0.0)
        relative = np.where(size > 0, error / size, 0.0)
    return Measured(
        error=found.error,
        relative=float(np.max(relative, initial=0.0)),
        ulp=found.ulp,
        tolerance_used=found.tolerance_used,
        scaled=float(np.max(error / (scale + size), initial=0.0)),
    )


def _size(array: Array) -> Array:
    """Return the absolute values; 0 for NaN and infinities."""
    values = np.abs(array.astype(np.float64)) if array.dtype != np.object_ else np.zeros(array.shape)
    return np.where(np.isfinite(values), values, 0.0)


def movements(
    reference: Reference,
    inputs: Sequence[Argument],
    attributes: Mapping[str, AttributeValue],
    *,
    precision: Precision,
    fixed: Container[int] = (),
) -> list[Array] | None:
    """Return how far each exact output moves when the inputs move by one unit in the last place of their dtype.

    The inputs move piece by piece and the movements add up, because in a sum most of them would cancel if all moved at
    once. `fixed`: the inputs that stay, such as a count. None where the reference raises for a moved input.
    """
    try:
        with np.errstate(all="ignore"):
            exact = reference.raw(widened(inputs, precision), attributes)
            total = [np.zeros(output.shape) for output in exact]
            for moved in _moved(inputs, fixed):
                outputs = [reference.raw(widened(arguments, precision), attributes) for arguments in moved]
                for at, output in enumerate(exact):
                    total[at] += np.max([_distance(found[at], output) for found in outputs], axis=0)
    except (DataError, ValueError):  # an output of another shape
        return None
    return total


def _moved(inputs: Sequence[Argument], fixed: Container[int]) -> Iterator[list[list[Argument]]]:
    """Yield, for each piece of each floating input, the inputs in which it moved: together, and alternating."""
    for index, argument in enumerate(inputs):
        if argument is None or index in fixed:
            continue
        arrays = argument if isinstance(argument, tuple) else (argument,)
        for place, array in enumerate(arrays):
            if dtype_name(array) not in FLOATS:
                continue
            for piece in np.array_split(np.arange(array.size), max(1, min(PIECES, array.size))):
                found: list[list[Argument]] = []
                for signs in (np.ones(len(piece)), np.where(np.arange(len(piece)) % 2, 1.0, -1.0)):
                    moved = _stepped(array, piece, signs)
                    one = (*arrays[:place], moved, *arrays[place + 1 :]) if isinstance(argument, tuple) else moved
                    found.append([*inputs[:index], one, *inputs[index + 1 :]])
                yield found


def _stepped(array: Array, piece: Array, signs: Array) -> Array:
    """Return a copy in which the finite values other than 0 at flat indices `piece` are one unit further."""
    moved = array.copy()
    values = moved.flat[piece]
    stepped = values + np.spacing(np.abs(values)) * signs.astype(array.dtype)
    moved.flat[piece] = np.where(np.isfinite(stepped) & (values != 0), stepped, values)
    return moved


def _distance(a: Array, b: Array) -> Array:
    distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(np.isfinite(distance), distance, 0.0)


def moved_scaled(movement: Array, expected: Array, *, scale: float) -> float:
    """Return a movement as `Measured.scaled` is an error."""
    return float(np.max(movement / (scale + _size(expected)), initial=0.0))


def called_for(measured: Measured, *, unit: float, scale: float) -> Tolerance:
    """Return the smallest tolerance, in one digit of 1, 2 or 5, that leaves a margin above the measured error and above
    `unit`, one unit in the last place of 1 in the output's dtype."""
    return _tolerance(max(MARGIN * measured.scaled, unit), scale)


def looser(declared: Tolerance, called: Tolerance, moved: float, *, scale: float) -> float:
    """Return how many times a declared tolerance is what is called for, in the part that is looser. What the rounding
    of the inputs moves is no looseness: another exact kernel may round them."""
    most = _tolerance(moved, scale)
    parts = ((declared.rtol, max(called.rtol, most.rtol)), (declared.atol, max(called.atol, most.atol)))
    return max(d / c if c else 0.0 for d, c in parts)


def _tolerance(scaled: float, scale: float) -> Tolerance:
    return Tolerance(rtol=_rounded_up(scaled), atol=_rounded_up(scaled * scale))


def _rounded_up(value: float) -> float:
    if value == 0 or math.isinf(value):
        return value
    power = 10.0 ** math.floor(math.log10(value))
    digit = next(d for d in (1, 2, 5, 10) if d * power >= value * (1 - 1e-9))
    return float(f"{digit * power:.0e}")
