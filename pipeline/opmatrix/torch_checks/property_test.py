"""The "search" part of register: call the kernel in torch with drawn inputs. It must agree with the reference, and
raise where that raises.

hypothesis is imported only to shrink a failure, so that the step stays fast after an edit of a kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.python_source import source
from opmatrix.declaration.torch_signature import dtype_of, is_parameter
from opmatrix.errors import RegisterError, one_line
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import Model, OpSpec, Tolerance
from opmatrix.testdata import drawn_cases
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import EXACT, compare
from opmatrix.testdata.drawn_cases import DrawnCase
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.torch_library.call import CALL_ERRORS, as_tuple, torch_attributes
from opmatrix.torch_library.case_tensors import arguments, tensors
from opmatrix.torch_library.load_library import LoadedLibrary

PIECES = 16  # of each input, moved one after the other by one unit in the last place
MARGIN = 8  # times the movement of the exact outputs is still rounding
FURTHER = 20  # times as many examples, to find a failure again and shrink it
SECONDS = 60.0  # for shrinking: a step that is stopped for its time would report no failure


def run(layout: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, Any]]:
    """Return the number of examples. On a failure, writes the smallest case and raises RegisterError."""
    check = KernelCheck(spec=operator.spec, overload=loaded.overload, reference=Reference(layout, operator.spec))
    tried = drawn_cases.read(layout.drawn_inputs(operator.name), operator.name)
    with torch.no_grad():
        first = next((one for one in tried if check.problem(one)), None)
        if first is None:
            refused = sum(one.expected is None for one in tried)
            return [{"check": "search", "examples": len(tried), "refused": refused}]
        found = _shrink(layout, operator, check, first, examples=FURTHER * len(tried))
        problem = check.problem(found)
    model = found.model
    write_text(layout.failing_case(operator.name, model.name), f"{one_line(problem)}\n{source(model)}\n")
    parts = (model.types, model.attributes, model.cases[0].inputs)
    shown = " ".join(source(dict(part), width=120) for part in parts if part)
    raise RegisterError(
        f"{operator.name}-{model.name} in torch: {problem}. The smallest that hypothesis found: {shown}. "
        f"Keep it as a case with: python -m opmatrix adopt-case {operator.name} {model.name}"
    )


def _shrink(layout: Paths, operator: Operator, check: KernelCheck, first: DrawnCase, *, examples: int) -> DrawnCase:
    from opmatrix.testdata import hypothesis_draw

    until = time.monotonic() + SECONDS
    failed: set[str] = set()

    def fails(model: Model) -> bool:
        if time.monotonic() < until and check.problem(drawn_cases.evaluate(operator.spec, model, check.reference)):
            failed.add(model.name)
        return model.name in failed

    model = hypothesis_draw.find(operator, fails, examples=examples, home=layout.hypothesis)
    return drawn_cases.evaluate(operator.spec, model, check.reference) if model else first


@dataclass(frozen=True, kw_only=True)
class KernelCheck:
    """Compares the kernel with the reference on any input."""

    spec: OpSpec
    overload: Callable[..., Any]
    reference: Reference

    def problem(self, one: DrawnCase) -> str:
        """Return how the kernel fails on a drawn case, or ""."""
        case = one.model.cases[0]
        step_log.now_running(f"drawn inputs of {', '.join(f'{n.dtype} {n.shape}' for n in one.arrays)}")
        flat = tensors(self.spec, one.model, case, one.arrays)
        given = arguments(self.spec, case, flat)
        try:
            actual = self._call(one.model, given)
            again = self._call(one.model, given)
        except CALL_ERRORS as error:
            return f"the kernel refuses what the reference computes: {error}" if one.expected is not None else ""
        if one.expected is None:
            return f"the kernel computes what the reference refuses: {one.refusal}"
        if any(not compare(t.numpy(), n, tolerance=EXACT).ok for t, n in zip(flat, one.arrays, strict=True)):
            return "the kernel writes into its input"
        if any(not compare(a, b, tolerance=EXACT).ok for a, b in zip(actual, again, strict=True)):
            return "the second call gives other numbers than the first"
        return self._difference(one, actual, one.expected)

    def _call(self, model: Model, given: list[Any]) -> list[Array]:
        return [o.numpy() for o in as_tuple(self.overload(*given, **torch_attributes(self.spec, model)))]

    def _difference(self, one: DrawnCase, actual: list[Array], expected: tuple[Array, ...]) -> str:
        """Return how an output differs by more than the tolerance and the rounding of the inputs, or ""."""
        for index, declared in enumerate(self.spec.outputs):
            tolerance = self.spec.tolerances["custom"][dtype_of(declared.type, one.model.types)]
            found = compare(actual[index], expected[index], tolerance=tolerance)
            if found.ok:
                continue
            if found.problem or tolerance == EXACT:
                return f"{declared.name}: {found}"
            if not _is_rounding(actual[index], expected[index], tolerance, self._movement(one, index, expected[index])):
                return f"{declared.name}: {found}, and rounding of the inputs does not explain it"
        return ""

    def _movement(self, one: DrawnCase, index: int, expected: Array) -> Array:
        """Return how far the exact output moves when inputs move by one unit in the last place.

        A kernel that computes in the inputs' precision cannot be more exact than that. The movement is infinite where
        the output becomes another infinity or NaN. The inputs move piece by piece and the movements add up, because in
        a sum most of them would cancel if all inputs moved at once.
        """
        random = np.random.Generator(np.random.PCG64(0))
        total = np.zeros(expected.shape)
        for at, feed in enumerate(graph_inputs(self.spec, one.model, one.model.cases[0])):
            array = one.arrays[at]
            if array.dtype.kind != "f" or not array.size or is_parameter(feed.part):
                continue
            for piece in np.array_split(np.arange(array.size), min(PIECES, array.size)):
                movement = np.zeros(expected.shape)
                for towards in _directions(len(piece), random):
                    arrays = [*one.arrays[:at], _moved(array, piece, towards), *one.arrays[at + 1 :]]
                    moved, _refusal = drawn_cases.reference_outputs(self.spec, one.model, self.reference, arrays)
                    if moved is None or moved[index].shape != expected.shape:
                        return np.full(expected.shape, np.inf)
                    movement = np.maximum(movement, _distance(moved[index], expected))
                total += movement
        return total


def _distance(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(_same(a, b), 0.0, np.where(np.isnan(distance), np.inf, distance))


def _directions(count: int, random: np.random.Generator) -> Iterator[Array]:
    """Yield the directions in which the values of a piece move: together (for sums), alternating, and at random."""
    yield np.full(count, np.inf)
    yield np.where(np.arange(count) % 2, np.inf, -np.inf)
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


def _is_rounding(actual: Array, expected: Array, tolerance: Tolerance, movement: Array) -> bool:
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
