"""The "kernel" part of register: compare the kernel's outputs in torch with the expected outputs of one case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from opmatrix.declaration.torch_signature import dtype_of
from opmatrix.spec import Case, Model, OpSpec
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.case_message import mismatch, refused
from opmatrix.testdata.compare import EXACT, compare
from opmatrix.testdata.onnx_dataset import DataSet
from opmatrix.torch_library.call import as_tuple, torch_attributes
from opmatrix.torch_library.case_tensors import arguments, tensors

THREADS = 4


@dataclass(frozen=True, kw_only=True)
class CaseCheck:
    """One case with its data, and the operator to call."""

    spec: OpSpec
    model: Model
    case: Case
    data: DataSet
    overload: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.case.name} in torch"

    @property
    def replay(self) -> str:
        return f"python -m opmatrix register {self.spec.name} --part kernel --case {self.case.name}"


def check_case(check: CaseCheck) -> tuple[list[str], dict[str, Any]]:
    """Return the problems, and the largest error, ULP and used tolerance over all outputs.

    With one thread the outputs must be the expected ones. A second call, and one with several threads, must give the
    same bits. The inputs must not change.
    """
    inputs = tensors(check.spec, check.model, check.case, list(check.data.inputs.values()))
    try:
        with threads(1):
            first, second = _call(check, inputs), _call(check, inputs)
        with threads(THREADS):
            third = _call(check, inputs)
    except (RuntimeError, ValueError, TypeError) as error:
        return [refused(str(check), error, replay=check.replay)], {}
    tolerances = check.spec.tolerances["custom"]  # the lowering that calls the kernel
    comparisons = [
        (o.name, compare(actual, expected, tolerance=tolerances[dtype_of(o.type, check.model.types)]))
        for o, actual, expected in zip(check.spec.outputs, first, check.data.outputs.values(), strict=True)
    ]
    problems = [mismatch(f"{check}: {name}", c, replay=check.replay) for name, c in comparisons if not c.ok]
    problems += _differing(check, "the second call", second, first)
    problems += _differing(check, f"the call with {THREADS} threads", third, first)
    problems += _differing(check, "its input afterwards", [i.numpy() for i in inputs], list(check.data.inputs.values()))
    keys = ("error", "ulp", "tolerance_used")
    return problems, {key: max((getattr(c, key) for _, c in comparisons), default=0.0) for key in keys}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call(check: CaseCheck, inputs: list[torch.Tensor]) -> list[Array]:
    given = arguments(check.spec, check.case, inputs)
    operator = partial(check.overload, **torch_attributes(check.spec, check.model))
    result = check.model.around(operator, *given) if check.model.around else operator(*given)
    return [o.numpy() for o in as_tuple(result)]


def _differing(check: CaseCheck, what: str, actual: list[Array], expected: list[Array]) -> Iterator[str]:
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if not (found := compare(a, e, tolerance=EXACT)).ok:
            yield mismatch(
                f"{check}: {what} ({dtype_name(a)} tensor {index}) is another one", found, replay=check.replay
            )
