"""Tell a wrong output of a drawn input from one that only rounding of the inputs moves beyond the tolerance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opmatrix.data.arrays import Array, is_float
from opmatrix.data.compare import EXACT, compare
from opmatrix.data.reference import Reference
from opmatrix.data.truth import declared_judge
from opmatrix.declaration.models import graph_inputs
from opmatrix.search import drawn
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import dtype_of, is_parameter
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import OpSpec, Tolerance

PIECES = 16  # of each input, moved one after the other by one unit in the last place
MARGIN = 8  # times the movement of the exact outputs is still rounding


def difference(spec: OpSpec, one: DrawnCase, actual: Sequence[Array], reference: Reference) -> str:
    """Return how an output differs by more than the tolerance and the rounding of the inputs, or "" also where the
    reference rejects the inputs."""
    for index, name, tolerance, expected in _outputs(spec, one):
        found = compare(actual[index], expected, tolerance=tolerance)
        if found.ok:
            continue
        if found.problem or tolerance == EXACT:
            return f"{name}: {found}"
        movements = (_movement(spec, reference, one, index, expected, pieces=n) for n in (1, PIECES))
        if not any(is_rounding(actual[index], expected, tolerance, m) for m in movements):
            narrow = one.precision == "declared dtype" and declared_judge(spec, one.model.types).precision == "float64"
            judged = ". Compared in the declared dtype; the message of the adopted case says why" if narrow else ""
            return f"{name}: {found}, and rounding of the inputs does not explain it{judged}"
    return ""


def allowed(spec: OpSpec, one: DrawnCase, reference: Reference) -> list[Array]:
    """Return what rounding of the inputs adds to the tolerance of each output."""
    return [
        np.zeros(expected.shape)
        if tolerance == EXACT
        else MARGIN * _movement(spec, reference, one, index, expected, pieces=PIECES)
        for index, _, tolerance, expected in _outputs(spec, one)
    ]


def _outputs(spec: OpSpec, one: DrawnCase) -> Iterator[tuple[int, str, Tolerance, Array]]:
    if one.expected is not None:
        parts = with_outputs(spec, len(one.expected)).outputs
        for index, (part, expected) in enumerate(zip(parts, one.expected, strict=True)):
            yield index, part.name, spec.tolerances["custom"][dtype_of(part.type, one.model.types)], expected


def _movement(spec: OpSpec, reference: Reference, one: DrawnCase, index: int, expected: Array, *, pieces: int) -> Array:
    """Return how far the exact output moves when inputs move by one unit in the last place.

    A kernel that computes in the inputs' precision cannot be more exact than that. The movement is infinite where
    the output becomes another infinity or NaN. The inputs move piece by piece and the movements add up, because in
    a sum most of them would cancel if all inputs moved at once. With one piece it is a lower bound, except that no
    movement is infinite: where that is enough, the others need not be computed.
    """
    random = np.random.Generator(np.random.PCG64(0))
    total = np.zeros(expected.shape)
    for at, feed in enumerate(graph_inputs(spec, one.model, one.model.cases[0])):
        array = one.arrays[at]
        if not is_float(array.dtype) or not array.size or is_parameter(feed.part):
            continue
        for piece in np.array_split(np.arange(array.size), min(pieces, array.size)):
            movement = np.zeros(expected.shape)
            for towards in _directions(len(piece), random, each_pair=pieces > 1):
                arrays = [*one.arrays[:at], _moved(array, piece, towards), *one.arrays[at + 1 :]]
                moved, _refusal = drawn.reference_outputs(spec, one.model, reference, arrays, precision=one.precision)
                if moved is None or moved[index].shape != expected.shape:
                    return np.full(expected.shape, np.inf if pieces > 1 else 0.0)
                with np.errstate(all="ignore"):
                    distance = np.abs(moved[index].astype(np.float64) - expected.astype(np.float64))
                infinite = np.where(np.isnan(distance), np.inf, distance)
                movement = np.maximum(movement, np.where(_same(moved[index], expected), 0.0, infinite))
            total += movement
    return total if pieces > 1 else np.where(np.isinf(total), 0.0, total)


def _directions(count: int, random: np.random.Generator, *, each_pair: bool) -> Iterator[Array]:
    """Yield the directions in which the values of a piece move: together (for sums), alternating, and at random.

    With `each_pair`, any two values move apart in one of them (for differences): the bits of their positions differ.
    """
    yield np.full(count, np.inf)
    for bit in range(max(count - 1, 1).bit_length() if each_pair else 1):
        yield np.where(np.arange(count) >> bit & 1, np.inf, -np.inf)
    for _ in range(2):
        yield np.where(random.random(count) < 0.5, np.inf, -np.inf)


def _moved(array: Array, piece: Array, towards: Array) -> Array:
    """Return a copy of `array` with neighbours `towards` for the finite values other than 0 at flat indices `piece`."""
    moved = array.copy()
    values = moved.flat[piece]
    with np.errstate(all="ignore"):
        neighbours = np.nextafter(values, towards.astype(array.dtype))
    movable = np.isfinite(values) & np.isfinite(neighbours) & (values != 0)
    moved.flat[piece] = np.where(movable, neighbours, values)
    return moved


def is_rounding(actual: Array, expected: Array, tolerance: Tolerance, movement: Array) -> bool:
    with np.errstate(all="ignore"):
        distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        # An infinity has no tolerance: rtol would allow every finite value.
        near = np.isfinite(expected) & (
            distance <= tolerance.atol + tolerance.rtol * np.abs(expected.astype(np.float64)) + MARGIN * movement
        )
    return bool((_same(actual, expected) | near | np.isinf(movement)).all())


def _same(a: Array, b: Array) -> Array:
    same: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return same
