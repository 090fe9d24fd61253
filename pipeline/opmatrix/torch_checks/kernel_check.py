"""The "kernel" part of register: compare the kernel's outputs in torch with the expected outputs of one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import EXACT, Comparison, Pair, compare, same_bytes, with_pattern
from opmatrix.data.dataset import DataSet
from opmatrix.declaration.models import graph_outputs, present
from opmatrix.judge.message import Voices, mismatch, refused, two_voices
from opmatrix.project.cpu_levels import NO_LEVELS, LibraryLevels
from opmatrix.signature.signature import dtype_of
from opmatrix.spec import Case, Model, OpSpec
from opmatrix.torch_ops.call import as_tuple, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, tensors

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
        return [refused(str(check), error, replay=check.replay)], {}
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
    of_reference, of_kernel = (
        _compared(check, [*check.data.outputs.values()], vectors),
        _compared(check, actual, vectors),
    )
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
