"""Compare the kernel's outputs in torch with the expected ones of a case, for the part "kernel" of register, and with
the reference for drawn inputs, for the part "search".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from opmatrix.basics import step_log
from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import EXACT, Comparison, Pair, compare, same_bytes, with_pattern
from opmatrix.data.dataset import DataSet, read
from opmatrix.data.reference import Reference
from opmatrix.data.truth import read_judges
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs, graph_outputs, present
from opmatrix.judge.message import Voices, mismatch, two_voices
from opmatrix.judge.rounding import difference
from opmatrix.project.cpu_levels import NO_LEVELS, LibraryLevels
from opmatrix.project.paths import Paths
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import attribute_values, dtype_of, is_off
from opmatrix.sizes.batch import batch_axes
from opmatrix.sizes.expressions import FURTHER
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Case, Model, OpSpec
from opmatrix.torch_ops.call import CALL_ERRORS, as_tuple, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, as_tensor, tensors, unaligned
from opmatrix.torch_ops.load import LoadedLibrary

THREADS = 4
_MEASURED = ("error", "ulp", "tolerance_used")


@dataclass(frozen=True, kw_only=True)
class CaseCheck:
    """One case with its data, and the operator to call."""

    spec: OpSpec
    model: Model
    case: Case
    data: DataSet
    overload: Callable[..., Any]
    levels: LibraryLevels = NO_LEVELS
    level: str = ""

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.case.name} in torch{self.level and f' at {self.level}'}"

    @property
    def replay(self) -> str:
        return f"python -m opmatrix register {self.spec.name} --part kernel --case {self.case.name}"


def case_checks(
    paths: Paths, operator: Operator, loaded: LoadedLibrary, *, only: str | None = None
) -> Iterator[CaseCheck]:
    """Yield the check of each case, or of the one named `only`, with its data set."""
    judges = read_judges(paths.data_manifest(operator.name))
    for model in operator.models:
        for index, case in enumerate(model.cases):
            if only not in (None, case.name):
                continue
            step_log.now_running(f"case {case.name}")
            folder = paths.data(operator.name, model.name, index)
            data = read(folder, judge=judges.get(folder))
            yield CaseCheck(
                spec=operator.spec, model=model, case=case, data=data, overload=loaded.overload, levels=loaded.levels
            )


def check_case(check: CaseCheck, mismatches: list[dict[str, Any]] | None = None) -> tuple[list[str], dict[str, Any]]:
    """Return the problems, the largest error, ULP and used tolerance over all outputs, and what judged them.

    With one thread the outputs must be the expected ones. A second call, and one with several threads, must give the
    same bits. The inputs must not change. Of a case that fails, what the report shows is added to `mismatches`. Where
    the library has levels, all this holds at each of them.
    """
    found = [_check_case(replace(check, level=level), mismatches) for level in check.levels.each()]
    problems = [problem for each, _ in found for problem in each]
    results = [result for _, result in found]
    if not all(results):  # a call was refused
        return problems, {}
    worst = {key: max(result[key] for result in results) for key in _MEASURED}
    levels = {"cpu_levels": check.levels.names} if check.levels.names else {}
    return problems, {**worst, "judged_in": str(check.data.judge), **levels}


def _check_case(check: CaseCheck, mismatches: list[dict[str, Any]] | None) -> tuple[list[str], dict[str, float]]:
    """Check a case at the level that is set. The result is empty where the kernel refuses the case."""
    inputs = tensors(check.spec, check.model, check.case, list(check.data.inputs.values()))
    try:
        with threads(1):
            first = _call(check, inputs)
            second = _call_again(check, inputs, first)
        with threads(THREADS):
            third = _call_again(check, inputs, first)
    except (RuntimeError, ValueError, TypeError) as error:
        return [mismatch(str(check), f"the kernel rejects it: {error}", replay=check.replay)], {}
    comparisons = _compared(check, first, [*check.data.outputs.values()])
    problems = _disagreeing(check, first, comparisons)
    problems += _differing(check, "the second call", second, first)
    problems += _differing(check, f"the call with {THREADS} threads", third, first)
    problems += _differing(
        check, "its input afterwards", [as_array(i) for i in inputs], list(check.data.inputs.values())
    )
    if problems and mismatches is not None:
        _measure(check, [first, second, third], mismatches)
    return problems, {key: max((getattr(c, key) for c in comparisons.values()), default=0.0) for key in _MEASURED}


def _measure(check: CaseCheck, calls: Sequence[list[Array]], mismatches: list[dict[str, Any]]) -> None:
    from opmatrix.judge import mismatch  # which only a failing case needs

    first, second, third = calls
    expected, vectors = [*check.data.outputs.values()], [*check.data.vectors.values()]
    kernel, reference = "kernel in torch", f"reference in {check.data.judge.precision}"
    outputs = graph_outputs(check.spec, check.model)
    declared = [check.spec.tolerances["custom"][dtype_of(o.type, check.model.types)] for o in outputs]
    pairs = [Pair(kernel, first, reference, expected, declared)]
    if vectors and check.case.expected:
        pairs += [Pair(reference, expected, f"vectors ({check.case.expected.source})", vectors, declared)]
    for name, again in (("the second call", second), (f"{THREADS} threads", third)):
        pairs += [Pair(f"{kernel}, {name}", again, kernel, first, [EXACT] * len(first))]
    names = [o.name for o in outputs]
    if found := mismatch.of_case(check.spec, check.model, check.case.name, check.data.inputs, names, pairs):
        mismatches.append(found)


def _compared(check: CaseCheck, actual: list[Array], expected: list[Array]) -> dict[str, Comparison]:
    """Return the comparison of each output, within the tolerances of the lowering that calls the kernel."""
    tolerances = check.spec.tolerances["custom"]
    return {
        o.name: with_pattern(compare(a, e, tolerance=tolerances[dtype_of(o.type, check.model.types)]), a, e)
        for o, a, e in zip(graph_outputs(check.spec, check.model), actual, expected, strict=True)
    }


def _disagreeing(check: CaseCheck, actual: list[Array], comparisons: dict[str, Comparison]) -> list[str]:
    """Return a message for each output in which the kernel, the reference and the vectors, if any, disagree."""
    if not check.data.vectors or not check.case.expected:
        why = two_voices(check.data.judge)
        return [
            mismatch(f"{check}: {name}", f"{c}; {why}", replay=check.replay)
            for name, c in comparisons.items()
            if not c.ok
        ]
    vectors = [*check.data.vectors.values()]
    of_reference = _compared(check, [*check.data.outputs.values()], vectors)
    of_kernel = _compared(check, actual, vectors)
    voices = {
        name: Voices(
            reference_kernel=comparison,
            reference_vectors=of_reference[name],
            kernel_vectors=of_kernel[name],
            source=check.case.expected.source,
        )
        for name, comparison in comparisons.items()
    }
    return [mismatch(f"{check}: {name}", str(v), replay=check.replay) for name, v in voices.items() if str(v)]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def call(check: CaseCheck) -> list[Array]:
    """Return the outputs of the kernel on one thread."""
    with threads(1):
        return _call(check, tensors(check.spec, check.model, check.case, list(check.data.inputs.values())))


def _call(check: CaseCheck, inputs: list[torch.Tensor]) -> list[Array]:
    given = arguments(check.spec, check.case, inputs)
    operator = with_attributes(check.overload, check.spec, check.model)
    result = check.model.around(operator, *given) if check.model.around else operator(*given)
    return [as_array(o) for o in present(check.spec, check.model, as_tuple(result))]


def _call_again(check: CaseCheck, inputs: list[torch.Tensor], first: list[Array]) -> list[Array]:
    """Return the outputs of a further call; equal ones are the first ones, so that a large case has them once."""
    outputs = _call(check, inputs)
    return first if len(outputs) == len(first) and all(map(same_bytes, outputs, first)) else outputs


def _differing(check: CaseCheck, what: str, actual: list[Array], expected: list[Array]) -> Iterator[str]:
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a is not e and not (found := compare(a, e, tolerance=EXACT)).ok:
            yield mismatch(
                f"{check}: {what} ({dtype_name(a)} tensor {index}) is another one", found, replay=check.replay
            )


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
            if wrong := self._problem(one):
                return f"at {level} {wrong}" if level else wrong
        return ""

    def _problem(self, one: DrawnCase) -> str:
        """Return how the kernel fails on a drawn case at the level that is set, or ""."""
        step_log.now_running(str(one))
        flat = tensors(self.spec, one.model, one.model.cases[0], one.arrays)
        try:
            actual, again = self._calls(one, flat)
        except CALL_ERRORS as error:
            return f"the kernel rejects what the reference computes: {error}" if one.expected is not None else ""
        if one.expected is None:
            return f"the kernel computes what the reference rejects: {one.refusal}"
        if any(not compare(as_array(t), n, tolerance=EXACT).ok for t, n in zip(flat, one.arrays, strict=True)):
            return "the kernel writes into its input"
        if wrong := difference(self.spec, one, actual, self.reference):
            return wrong
        if wrong := self._unequal(one, flat, actual, again):
            return wrong
        if wrong := self._mixed(one, actual):
            return wrong
        if not self.spec.elementwise:
            return ""
        from opmatrix.torch_checks import invalid_calls  # which few operators need

        return invalid_calls.wrong(self.spec, one, self.reference, partial(self._call, one))

    def measure(self, one: DrawnCase) -> dict[str, Any] | None:
        """Return what the report shows of a failing case: where its outputs differ, if they do."""
        from opmatrix.judge import mismatch  # which only a failing case needs

        try:
            first, again = self._calls(one, tensors(self.spec, one.model, one.model.cases[0], one.arrays))
        except CALL_ERRORS:
            return None
        kernel = "kernel in torch"
        runs = {kernel: first, f"{kernel}, {THREADS} threads, inputs that begin as x[1:] does": again}
        wrong = difference(self.spec, one, first, self.reference) != ""
        return mismatch.of_drawn(self.spec, one, runs, wrong=wrong)

    def _unequal(self, one: DrawnCase, flat: Sequence[torch.Tensor], first: list[Array], again: list[Array]) -> str:
        """Return how the second call differs from the first, or "". It has several threads, and its inputs begin at
        addresses that are aligned for one element alone."""
        comparisons = (compare(a, b, tolerance=EXACT) for a, b in zip(again, first, strict=True))
        outputs = with_outputs(self.spec, len(first)).outputs
        differ = [(o.name, found) for o, found in zip(outputs, comparisons, strict=True) if not found.ok]
        if not differ:
            return ""
        name, found = differ[0]

        def repeats(count: int) -> bool:
            """Return whether a further call with the same inputs gives the numbers of the first."""
            with threads(count):
                further = self._call(one, flat)
            return all(compare(a, b, tolerance=EXACT).ok for a, b in zip(further, first, strict=True))

        if not repeats(1):
            return (
                f"the second call gives other numbers than the first: {name}: {found}. The kernel leaves elements of "
                "an output unwritten, or keeps something from one call to the next"
            )
        if not repeats(THREADS):
            return f"with {THREADS} threads the kernel gives other numbers than with one: {name}: {found}"
        return f"the kernel gives other numbers where inputs begin at addresses as those of x[1:]: {name}: {found}"

    def _mixed(self, one: DrawnCase, outputs: Sequence[Array]) -> str:
        """Return how the outputs of a few indices of `TorchOp.batch` differ from a call with one of them alone, or
        ""."""
        spec, model, batch = self.spec, one.model, batch_axes(self.spec)
        if batch is None:
            return ""
        names = [feed.part.name for feed in graph_inputs(spec, model, model.cases[0])]
        places = [batch.inputs.get(name) for name in names]
        # How many indices the batch has: for "...", along its first axis, 0 where it has none.
        length, dims = 0, {part.name: part.dims for part in spec.inputs if part.same_as is None}
        for name, at, array in zip(names, places, one.arrays, strict=True):
            if at is not None and name in dims:
                has_none = batch.is_added and array.ndim < len(dims[name] or (FURTHER,))
                length = 0 if has_none else int(array.shape[at])
                break
        wrong = f"batch={spec.torch.batch if spec.torch else ''!r} of TorchOp is wrong"
        for index in dict.fromkeys((0, 1, length // 2, length - 1)) if length > (not batch.is_added) else ():
            if not 0 <= index < length:
                continue
            taken = [_taken(a, at, index, is_added=batch.is_added) for a, at in zip(one.arrays, places, strict=True)]
            try:
                alone = self._call(one, [as_tensor(array) for array in taken])
            except CALL_ERRORS as error:
                return f"{wrong}: the kernel rejects index {index} alone: {error}"
            for output, whole, at, actual in zip(spec.outputs, outputs, batch.outputs, alone, strict=True):
                if is_off(spec, output, attribute_values(spec, model)):
                    continue
                part = _taken(whole, at, index, is_added=batch.is_added)
                tolerance = spec.tolerances["custom"][dtype_of(output.type, model.types)]
                if not (found := compare(part, actual, tolerance=tolerance)).ok:
                    return (
                        f"{wrong}: {output.name} at index {index} differs from a call with this index alone: {found}. "
                        "The kernel mixes indices: remove batch, or correct the kernel"
                    )
        return ""

    def _calls(self, one: DrawnCase, flat: Sequence[torch.Tensor]) -> tuple[list[Array], list[Array]]:
        """Return the outputs of a call with one thread, and of one with several whose inputs begin as x[1:] does."""
        with threads(1):
            first = self._call(one, flat)
        with threads(THREADS):
            return first, self._call(one, [unaligned(t) for t in flat])

    def _call(self, one: DrawnCase, flat: Sequence[torch.Tensor]) -> list[Array]:
        given = arguments(self.spec, one.model.cases[0], flat)
        return [as_array(o) for o in as_tuple(with_attributes(self.overload, self.spec, one.model)(*given))]


def _taken(array: Array, at: int | None, index: int, *, is_added: bool) -> Array:
    if at is None:
        return array
    return np.asarray(np.take(array, index if is_added else [index], axis=at))
