"""The "search" part of register: call the kernel in torch with drawn inputs. It must agree with the reference, and
raise where that raises.

hypothesis is imported only to shrink a failure, so that the step stays fast after an edit of a kernel.

Test that an operator treats the indices of `TorchOp.batch` one by one: a call with one of them gives its outputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from opmatrix.basics import step_log
from opmatrix.basics.errors import RegisterError, UsageError
from opmatrix.data.arrays import Array
from opmatrix.data.compare import EXACT, compare
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs
from opmatrix.judge.message import over_cases
from opmatrix.judge.rounding import difference
from opmatrix.project.cpu_levels import NO_LEVELS, LibraryLevels
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.search import coverage
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.drawn import Drawn, DrawnCase, keep, stored
from opmatrix.signature.signature import attribute_values, dtype_of, is_off, model_dtypes
from opmatrix.sizes.batch import batch_axes
from opmatrix.sizes.expressions import FURTHER
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Model, OpSpec
from opmatrix.torch_checks import shrink
from opmatrix.torch_checks.kernel_check import THREADS, threads
from opmatrix.torch_checks.shrink import Ended, smallest
from opmatrix.torch_ops.call import CALL_ERRORS, as_tuple, torch_minor, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, as_tensor, tensors, unaligned
from opmatrix.torch_ops.features import why_no_dtype
from opmatrix.torch_ops.load import LoadedLibrary

MORE_EXAMPLES = 20  # times as many examples, to find a failure again and shrink it
CRASH_EXAMPLES = 1000  # each in a process of its own
CRASH_SECONDS = 10  # of one of them
ALL_CRASH_SECONDS = 20.0  # of all
SECONDS = 60.0  # for shrinking: a step that is stopped for its time would report no failure
OVER_SECONDS = 20  # for all drawn inputs, once one fails
SMALLEST = "The smallest that hypothesis found"


def run(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, Any]]:
    """Return what was tried. On a failure, writes the smallest case and raises RegisterError.

    The kernel runs in a forked child: if it crashes, the parent names the case, and shrinks it in further children.
    """
    check = KernelCheck.of(paths, operator, loaded)
    drawn = drawn_cases.read_all(paths.drawn_inputs(operator.name), operator.name)
    drawn = replace(drawn, cases=[c for c in drawn.cases if not why_no_dtype(model_dtypes(operator.spec, c.model))])
    if paths.sanitized or not shrink.can_fork():  # a sanitizer says more than a smaller input
        return _search(paths, operator, check, drawn, lambda name: None)

    def search(tell: Callable[[str], None]) -> bytes:
        try:
            return json.dumps({"results": _search(paths, operator, check, drawn, tell)}).encode()
        except RegisterError as error:
            return json.dumps({"error": str(error)}).encode()

    ended = shrink.call(search)
    if ended.answer is not None:
        answer = json.loads(ended.answer)
        if "error" in answer:
            raise RegisterError("\n".join([answer["error"], *_over_drawn(check, drawn.cases)]))
        return list(answer["results"])
    first = next((one for one in drawn.cases if one.model.name == ended.sent), None)
    if first is None:
        raise RegisterError(f"{operator.name} in torch: the search {ended.how}; its output has more")
    raise RegisterError(_crash(paths, operator, check, first, ended))


def replay(paths: Paths, operator: Operator, loaded: LoadedLibrary, *, case: str) -> None:
    """Call the kernel with one drawn case, or with one that was shrunk, in this process: a debugger sees a crash."""
    check = KernelCheck.of(paths, operator, loaded)
    found = stored(paths, operator, case)
    if found is None:
        raise UsageError(
            f"{operator.name} has no drawn case {case!r}. `python -m opmatrix register {operator.name} --part search` "
            "says the name of one that fails"
        )
    with torch.no_grad():
        if problem := check.problem(found):
            raise RegisterError(f"{operator.name}-{case} in torch: {problem}")


def _search(
    paths: Paths, operator: Operator, check: KernelCheck, drawn: Drawn, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    def fails(one: DrawnCase) -> bool:
        tell(one.model.name)
        return check.problem(one) != ""

    with torch.no_grad():
        first = next(filter(fails, drawn.cases), None)
        if first is None:
            return [coverage.measure(operator, drawn)]

        def candidate_fails(model: Model) -> bool:
            return check.problem(drawn_cases.evaluate(operator.spec, model, check.reference)) != ""

        examples = MORE_EXAMPLES * len(drawn.cases)
        model = smallest(paths, operator, first, candidate_fails, examples=examples, seconds=SECONDS)
        found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
        problem, measured = check.problem(found), check.measure(found)
    record = paths.register_manifest(operator.name, "search", torch=torch_minor())
    verdict.write_mismatches(paths.mismatches(record), [measured] if measured else [])
    raise RegisterError(keep(paths, operator, found, problem, where="torch", which=SMALLEST))


def _over_drawn(check: KernelCheck, drawn: Sequence[DrawnCase]) -> list[str]:
    """Return the line of what the drawn inputs that fail as the first failing one have in common, or none, as where one
    of them crashes."""
    from opmatrix.judge.case_facts import in_common_of_drawn  # which only a failure needs

    def call(tell: Callable[[str], None]) -> bytes:
        with torch.no_grad():
            return in_common_of_drawn(check.spec, drawn, check.problem).encode()

    ended = shrink.call(call, quiet=True, seconds=OVER_SECONDS)
    return over_cases((ended.answer or b"").decode())


def _crash(paths: Paths, operator: Operator, check: KernelCheck, first: DrawnCase, ended: Ended) -> str:
    """Return the message of a crash: with the smallest case that ends the process in the same way."""

    def crashes(model: Model) -> bool:
        def call(tell: Callable[[str], None]) -> bytes:
            with torch.no_grad():
                check.problem(drawn_cases.evaluate(operator.spec, model, check.reference))
            return b""

        one = shrink.call(call, quiet=True, seconds=CRASH_SECONDS)
        return one.answer is None and one.status == ended.status

    model = smallest(paths, operator, first, crashes, examples=CRASH_EXAMPLES, seconds=ALL_CRASH_SECONDS)
    found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
    name = found.model.name
    message = keep(paths, operator, found, f"the kernel {ended.how}", where="torch", which=SMALLEST)
    run = f"python -m opmatrix register {operator.name} --part search --case {name}"
    debug = f"python -m opmatrix compile {operator.name} --debug && gdb --args {run} --debug"
    return f"{message}\nReplay: {run}\nDebug: {debug}"


@dataclass(frozen=True, kw_only=True)
class KernelCheck:
    """Compares the kernel with the reference on any input."""

    spec: OpSpec
    overload: Callable[..., Any]
    reference: Reference
    levels: LibraryLevels = NO_LEVELS

    @classmethod
    def of(cls, paths: Paths, operator: Operator, loaded: LoadedLibrary) -> KernelCheck:
        """Return the check of an operator's loaded kernel."""
        reference = Reference(paths, operator.spec)
        return cls(spec=operator.spec, overload=loaded.overload, reference=reference, levels=loaded.levels)

    def problem(self, one: DrawnCase) -> str:
        """Return how the kernel fails on a drawn case, or "", at the first level where it does. That one remains."""
        for level in self.levels.each():
            if found := self._problem(one):
                return f"at {level} {found}" if level else found
        return ""

    def _problem(self, one: DrawnCase) -> str:
        """Return how the kernel fails on a drawn case at the level that is set, or ""."""
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
            return f"the kernel rejects what the reference computes: {error}" if one.expected is not None else ""
        if one.expected is None:
            return f"the kernel computes what the reference rejects: {one.refusal}"
        if any(not compare(as_array(t), n, tolerance=EXACT).ok for t, n in zip(flat, one.arrays, strict=True)):
            return "the kernel writes into its input"
        if wrong := difference(self.spec, one, actual, one.expected, self.reference):
            return wrong
        return self._unequal(one, given, actual, again) or self._mixed(one, actual) or self._of_format(one)

    def measure(self, one: DrawnCase) -> dict[str, Any] | None:
        """Return what the report shows of a failing case: where its outputs differ, if they do."""
        from opmatrix.judge import mismatch  # which only a failing case needs

        case = one.model.cases[0]
        flat = tensors(self.spec, one.model, case, one.arrays)
        try:
            with threads(1):
                first = self._call(one.model, arguments(self.spec, case, flat))
            with threads(THREADS):
                again = self._call(one.model, arguments(self.spec, case, [unaligned(t) for t in flat]))
        except CALL_ERRORS:
            return None
        kernel = "kernel in torch"
        runs = {kernel: first, f"{kernel}, {THREADS} threads, inputs that begin as x[1:] does": again}
        wrong = one.expected is not None and difference(self.spec, one, first, one.expected, self.reference) != ""
        return mismatch.of_drawn(self.spec, one, runs, wrong=wrong)

    def _mixed(self, one: DrawnCase, actual: list[Array]) -> str:
        """Return how the kernel breaks the promise of `TorchOp.batch`, or ""."""
        if not (self.spec.torch and self.spec.torch.batch):
            return ""

        def call(arrays: Sequence[Array]) -> list[Array]:
            flat = [as_tensor(array) for array in arrays]
            return self._call(one.model, arguments(self.spec, one.model.cases[0], flat))

        return mixed(self.spec, one.model, one.arrays, actual, call)

    def _of_format(self, one: DrawnCase) -> str:
        """Return how the kernel breaks the promise of `OpSpec.elementwise`, or ""."""
        if not self.spec.elementwise:
            return ""
        from opmatrix.torch_checks import invalid_calls  # which few operators need

        def call(flat: Sequence[torch.Tensor]) -> list[Array]:
            return self._call(one.model, arguments(self.spec, one.model.cases[0], flat))

        return invalid_calls.wrong(self.spec, one, self.reference, call)

    def _unequal(self, one: DrawnCase, given: list[Any], first: list[Array], again: list[Array]) -> str:
        """Return how the second call differs from the first, or "". It has several threads, and its inputs begin at
        addresses that are aligned for one element alone."""
        comparisons = (compare(a, b, tolerance=EXACT) for a, b in zip(again, first, strict=True))
        outputs = with_outputs(self.spec, len(first)).outputs
        differ = [(o.name, found) for o, found in zip(outputs, comparisons, strict=True) if not found.ok]
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
        return [as_array(o) for o in as_tuple(with_attributes(self.overload, self.spec, model)(*given))]


Call = Callable[[Sequence[Array]], Sequence[Array]]


def mixed(spec: OpSpec, model: Model, arrays: Sequence[Array], outputs: Sequence[Array], call: Call) -> str:
    """Return how the outputs of a few indices differ from those of a call with one index alone, or ""."""
    batch = batch_axes(spec)
    if batch is None:
        return ""
    names = [feed.part.name for feed in graph_inputs(spec, model, model.cases[0])]
    places = [batch.inputs.get(name) for name in names]
    length = _length(spec, names, places, arrays, is_added=batch.is_added)
    declared = spec.torch.batch if spec.torch else ""
    for index in dict.fromkeys((0, 1, length // 2, length - 1)) if length > (not batch.is_added) else ():
        if not 0 <= index < length:
            continue
        one = [_taken(a, at, index, is_added=batch.is_added) for a, at in zip(arrays, places, strict=True)]
        try:
            alone = call(one)
        except CALL_ERRORS as error:
            return f"batch={declared!r} of TorchOp is wrong: the kernel rejects index {index} alone: {error}"
        for output, whole, at, actual in zip(spec.outputs, outputs, batch.outputs, alone, strict=True):
            if is_off(spec, output, attribute_values(spec, model)):
                continue
            part = _taken(whole, at, index, is_added=batch.is_added)
            tolerance = spec.tolerances["custom"][dtype_of(output.type, model.types)]
            if not (found := compare(part, actual, tolerance=tolerance)).ok:
                return (
                    f"batch={declared!r} of TorchOp is wrong: {output.name} at index {index} differs from a call with "
                    f"this index alone: {found}. The kernel mixes indices: remove batch, or correct the "
                    "kernel"
                )
    return ""


def _length(
    spec: OpSpec, names: Sequence[str], places: Sequence[int | None], arrays: Sequence[Array], *, is_added: bool
) -> int:
    """Return how many indices the batch has: for "...", along its first axis, 0 where it has none."""
    dims = {part.name: part.dims for part in spec.inputs if part.same_as is None}
    for name, at, array in zip(names, places, arrays, strict=True):
        if at is None or name not in dims:
            continue
        if is_added and array.ndim < len(dims[name] or (FURTHER,)):
            return 0
        return int(array.shape[at])
    return 0


def _taken(array: Array, at: int | None, index: int, *, is_added: bool) -> Array:
    if at is None:
        return array
    return np.asarray(np.take(array, index if is_added else [index], axis=at))
