"""The "search" part of register: call the kernel in torch with drawn inputs. It must agree with the reference, and
raise where that raises.

hypothesis is imported only to shrink a failure, so that the step stays fast after an edit of a kernel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.python_source import source
from opmatrix.declaration.torch_signature import dtype_of, is_parameter
from opmatrix.errors import RegisterError, UsageError, one_line
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import Model, OpSpec, Tolerance
from opmatrix.testdata import drawn_cases, search_yield
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import EXACT, compare
from opmatrix.testdata.drawn_cases import Drawn, DrawnCase
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.torch_checks import forked_call
from opmatrix.torch_checks.forked_call import Ended
from opmatrix.torch_checks.kernel_check import THREADS, threads
from opmatrix.torch_checks.shrink import smallest
from opmatrix.torch_library.call import CALL_ERRORS, as_tuple, torch_attributes
from opmatrix.torch_library.case_tensors import arguments, tensors, unaligned
from opmatrix.torch_library.load_library import LoadedLibrary

PIECES = 16  # of each input, moved one after the other by one unit in the last place
MARGIN = 8  # times the movement of the exact outputs is still rounding
FURTHER = 20  # times as many examples, to find a failure again and shrink it
CRASH_EXAMPLES = 1000  # each in a process of its own
CRASH_SECONDS = 10  # of one of them
ALL_CRASH_SECONDS = 20.0  # of all
SECONDS = 60.0  # for shrinking: a step that is stopped for its time would report no failure


def run(layout: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, Any]]:
    """Return what was tried. On a failure, writes the smallest case and raises RegisterError.

    The kernel runs in a forked child: if it crashes, the parent names the case, and shrinks it in further children.
    """
    check = KernelCheck(spec=operator.spec, overload=loaded.overload, reference=Reference(layout, operator.spec))
    drawn = drawn_cases.read_all(layout.drawn_inputs(operator.name), operator.name)
    if layout.sanitized or not forked_call.can_fork():  # a sanitizer says more than a smaller input
        return _search(layout, operator, check, drawn, lambda name: None)

    def search(tell: Callable[[str], None]) -> bytes:
        try:
            return json.dumps({"results": _search(layout, operator, check, drawn, tell)}).encode()
        except RegisterError as error:
            return json.dumps({"error": str(error)}).encode()

    ended = forked_call.call(search)
    if ended.answer is not None:
        answer = json.loads(ended.answer)
        if "error" in answer:
            raise RegisterError(answer["error"])
        return list(answer["results"])
    first = next((one for one in drawn.cases if one.model.name == ended.sent), None)
    if first is None:
        raise RegisterError(f"{operator.name} in torch: the search {ended.how}; its output says more")
    raise RegisterError(_crash(layout, operator, check, first, ended))


def replay(layout: Paths, operator: Operator, loaded: LoadedLibrary, *, case: str) -> None:
    """Call the kernel with one drawn case, or with one that was shrunk, in this process: a debugger sees a crash."""
    check = KernelCheck(spec=operator.spec, overload=loaded.overload, reference=Reference(layout, operator.spec))
    shrunk = _shrunk_file(layout, operator, case)
    path = shrunk if shrunk.exists() else layout.drawn_inputs(operator.name)
    found = next((one for one in drawn_cases.read(path, operator.name) if one.model.name == case), None)
    if found is None:
        raise UsageError(
            f"{operator.name} has no drawn case {case!r}. `python -m opmatrix register {operator.name} --part search` "
            "says the name of one that fails"
        )
    with torch.no_grad():
        if problem := check.problem(found):
            raise RegisterError(f"{operator.name}-{case} in torch: {problem}")


def _search(
    layout: Paths, operator: Operator, check: KernelCheck, drawn: Drawn, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    def fails(one: DrawnCase) -> bool:
        tell(one.model.name)
        return check.problem(one) != ""

    with torch.no_grad():
        first = next(filter(fails, drawn.cases), None)
        if first is None:
            return [search_yield.measure(operator, drawn)]

        def candidate_fails(model: Model) -> bool:
            return check.problem(drawn_cases.evaluate(operator.spec, model, check.reference)) != ""

        examples = FURTHER * len(drawn.cases)
        model = smallest(layout, operator, first, candidate_fails, examples=examples, seconds=SECONDS)
        found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
        problem = check.problem(found)
    raise RegisterError(_message(layout, operator, found, problem))


def _crash(layout: Paths, operator: Operator, check: KernelCheck, first: DrawnCase, ended: Ended) -> str:
    """Return the message of a crash: with the smallest case that ends the process in the same way."""

    def crashes(model: Model) -> bool:
        def call(tell: Callable[[str], None]) -> bytes:
            with torch.no_grad():
                check.problem(drawn_cases.evaluate(operator.spec, model, check.reference))
            return b""

        one = forked_call.call(call, quiet=True, seconds=CRASH_SECONDS)
        return one.answer is None and one.status == ended.status

    model = smallest(layout, operator, first, crashes, examples=CRASH_EXAMPLES, seconds=ALL_CRASH_SECONDS)
    found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
    name = found.model.name
    message = _message(layout, operator, found, f"the kernel {ended.how}")
    run = f"python -m opmatrix register {operator.name} --part search --case {name}"
    debug = f"python -m opmatrix compile {operator.name} --debug && gdb --args {run} --debug"
    return f"{message}\nReplay: {run}\nDebug: {debug}"


def _message(layout: Paths, operator: Operator, found: DrawnCase, problem: str) -> str:
    """Write a failing case to files, for adopt-case and for `replay`; return the message."""
    model = found.model
    write_text(layout.failing_case(operator.name, model.name), f"{one_line(problem)}\n{source(model)}\n")
    drawn_cases.write(_shrunk_file(layout, operator, model.name), [found], operator=operator.name)
    return (
        f"{operator.name}-{model.name} in torch: {problem}. The smallest that hypothesis found: {_described(model)}. "
        f"Keep it as a case with: python -m opmatrix adopt-case {operator.name} {model.name}"
    )


def _described(model: Model) -> str:
    """Return dtypes, attributes, and the inputs: their values, or how they are drawn."""
    parts = (model.types, model.attributes, model.cases[0].inputs)
    return " ".join(source(dict(part), width=120) for part in parts if part)


def _shrunk_file(layout: Paths, operator: Operator, case: str) -> Path:
    return layout.failing_case(operator.name, case).with_suffix(".cases")


@dataclass(frozen=True, kw_only=True)
class KernelCheck:
    """Compares the kernel with the reference on any input."""

    spec: OpSpec
    overload: Callable[..., Any]
    reference: Reference

    def problem(self, one: DrawnCase) -> str:
        """Return how the kernel fails on a drawn case, or ""."""
        case = one.model.cases[0]
        step_log.now_running(str(one))
        flat = tensors(self.spec, one.model, case, one.arrays)
        given = arguments(self.spec, case, flat)
        try:
            with threads(1):
                actual = self._call(one.model, given)
            with threads(THREADS):
                again = self._call(one.model, arguments(self.spec, case, [unaligned(t) for t in flat]))
        except CALL_ERRORS as error:
            return f"the kernel refuses what the reference computes: {error}" if one.expected is not None else ""
        if one.expected is None:
            return f"the kernel computes what the reference refuses: {one.refusal}"
        if any(not compare(t.numpy(), n, tolerance=EXACT).ok for t, n in zip(flat, one.arrays, strict=True)):
            return "the kernel writes into its input"
        if difference := self._difference(one, actual, one.expected):
            return difference
        return self._unequal(one, given, actual, again)

    def _unequal(self, one: DrawnCase, given: list[Any], first: list[Array], again: list[Array]) -> str:
        """Return how the second call differs from the first, or "". It has several threads, and its inputs begin at
        addresses that are aligned for one element alone."""
        comparisons = (compare(a, b, tolerance=EXACT) for a, b in zip(again, first, strict=True))
        differ = [(o.name, found) for o, found in zip(self.spec.outputs, comparisons, strict=True) if not found.ok]
        if not differ:
            return ""
        name, found = differ[0]
        with threads(1):
            second = self._call(one.model, given)
        if self._equal(first, second):
            with threads(THREADS):
                third = self._call(one.model, given)
            if not self._equal(first, third):
                return f"with {THREADS} threads the kernel gives other numbers than with one: {name}: {found}"
            return f"the kernel gives other numbers where inputs begin at addresses as those of x[1:]: {name}: {found}"
        return (
            f"the second call gives other numbers than the first: {name}: {found}. The kernel leaves elements of an "
            "output unwritten, or keeps something from one call to the next"
        )

    def _equal(self, first: list[Array], other: list[Array]) -> bool:
        return all(compare(a, b, tolerance=EXACT).ok for a, b in zip(other, first, strict=True))

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
            movements = (self._movement(one, index, expected[index], pieces=n) for n in (1, PIECES))
            if not any(_is_rounding(actual[index], expected[index], tolerance, m) for m in movements):
                return f"{declared.name}: {found}, and rounding of the inputs does not explain it"
        return ""

    def _movement(self, one: DrawnCase, index: int, expected: Array, *, pieces: int) -> Array:
        """Return how far the exact output moves when inputs move by one unit in the last place.

        A kernel that computes in the inputs' precision cannot be more exact than that. The movement is infinite where
        the output becomes another infinity or NaN. The inputs move piece by piece and the movements add up, because in
        a sum most of them would cancel if all inputs moved at once. With one piece it is a lower bound, except that no
        movement is infinite: where that is enough, the others need not be computed.
        """
        random = np.random.Generator(np.random.PCG64(0))
        total = np.zeros(expected.shape)
        for at, feed in enumerate(graph_inputs(self.spec, one.model, one.model.cases[0])):
            array = one.arrays[at]
            if array.dtype.kind != "f" or not array.size or is_parameter(feed.part):
                continue
            for piece in np.array_split(np.arange(array.size), min(pieces, array.size)):
                movement = np.zeros(expected.shape)
                for towards in _directions(len(piece), random):
                    arrays = [*one.arrays[:at], _moved(array, piece, towards), *one.arrays[at + 1 :]]
                    moved, _refusal = drawn_cases.reference_outputs(
                        self.spec, one.model, self.reference, arrays, precision=one.precision
                    )
                    if moved is None or moved[index].shape != expected.shape:
                        return np.full(expected.shape, np.inf if pieces > 1 else 0.0)
                    movement = np.maximum(movement, _distance(moved[index], expected))
                total += movement
        return total if pieces > 1 else np.where(np.isinf(total), 0.0, total)


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
