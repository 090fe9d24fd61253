"""The "forbidden" part of register: make each call of opmatrix.search.invalid_calls in torch, which must raise.

Test `OpSpec.elementwise`: call the kernel with tensors in torch's memory formats channels_last and channels_last_3d,
with some inputs in one of them, and with others that are not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from opmatrix.basics import step_log
from opmatrix.basics.errors import RegisterError
from opmatrix.data.arrays import Array
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.judge.rounding import difference
from opmatrix.search.drawn import DrawnCase
from opmatrix.search.invalid_calls import Call, invalid_calls, missing_calls, valid_call, valid_call_fails
from opmatrix.search.shapes import FORMATTED, reorders, takes_any_shape
from opmatrix.spec import OpSpec
from opmatrix.torch_checks.case_calls import CaseCall
from opmatrix.torch_ops.call import CALL_ERRORS, as_tuple, torch_call, with_attributes
from opmatrix.torch_ops.case_tensors import as_array, as_tensor, laid_out


def results(operator: Operator, overload: Callable[..., Any]) -> list[dict[str, str]]:
    """Return the calls that raised. Raises RegisterError with each call that returned a result, and with what no
    case allows to try, or with why the calls prove nothing."""
    try:
        call(operator, overload, valid_call(operator))
    except CALL_ERRORS as error:
        raise RegisterError(valid_call_fails(operator, "torch", error)) from error
    tried, computed = [*invalid_calls(operator)], [*missing_calls(operator)]
    for one in tried:
        step_log.now_running(f"the invalid call with {one}")
        try:
            call(operator, overload, one.call)
        except CALL_ERRORS:
            continue
        computed.append(f"{operator.name} in torch computes what its declaration forbids: {one}")
    if computed:
        raise RegisterError("\n".join(computed))
    return [{"check": "forbidden", "call": str(one)} for one in tried]


def call(operator: Operator, overload: Callable[..., Any], chosen: Call) -> Any:
    """Call the operator in torch with NumPy arguments."""
    arguments = [
        [as_tensor(array) for array in a] if isinstance(a, tuple) else None if a is None else as_tensor(a)
        for a in chosen.inputs
    ]
    return with_attributes(overload, operator.spec, chosen.model)(*arguments)


FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def wrong(
    spec: OpSpec, one: DrawnCase, reference: Reference, call: Callable[[Sequence[torch.Tensor]], Sequence[Array]]
) -> str:
    """Return how the kernel differs from the reference in one of the formats, or ""."""
    for shown, inputs in _in_formats(spec, one.arrays):
        try:
            problem = difference(spec, one, call(inputs), reference)
        except CALL_ERRORS as error:
            problem = f"the kernel rejects what the reference computes: {error}"
        if problem:
            batch, channels, *space = one.arrays[0].shape
            return (
                f"with {shown} {problem}. With elementwise=True the kernel gets inputs that all are in such a format "
                f"in the order of memory, with the sizes {(batch, *space, channels)}. Compute each element from those "
                "at its position, without sizes, or remove elementwise=True"
            )
    return ""


def format_results(
    spec: OpSpec, samples: Sequence[CaseCall], overload: Callable[..., Any], generated: GeneratedModules
) -> Iterator[dict[str, str]]:
    """Yield the samples whose outputs have the strides that the fake kernel gives, and the format of inputs that all
    are in it. Raises RegisterError for the first one that differs."""
    for sample in samples:
        arrays = [as_array(tensor.detach()) for tensor in sample.tensors]
        shapes = FORMATTED if takes_any_shape(spec) else (arrays[0].shape,)
        for shape in shapes:
            for shown, inputs in _in_formats(spec, [np.resize(array, shape) for array in arrays]):
                given, named = torch_call(spec, sample.model, inputs)
                real, fake = (as_tuple(call(*given, **named)) for call in (overload, generated.fake.fake))
                for output, a, b in zip(spec.outputs, real, fake, strict=True):
                    if a.stride() != b.stride():
                        raise RegisterError(
                            f"{spec.name}-{sample.case.name}: with {shown} of shape {shape} the fake kernel gives "
                            f"{output.name} the strides {b.stride()}, the compiled one {a.stride()}. Generate and "
                            f"compile both again: python -m opmatrix codegen {spec.name} && python -m opmatrix compile "
                            f"{spec.name}"
                        )
        yield {"case": sample.case.name, "check": "memory formats"}


def _in_formats(spec: OpSpec, arrays: Sequence[Array]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield inputs in several memory formats, with a description; none for a shape for which they are the same."""
    if not reorders(arrays[0].shape):
        return
    found = FORMATS[arrays[0].ndim]
    name = str(found).removeprefix("torch.")
    tensors = [as_tensor(array) for array in arrays]
    formatted = [tensor.contiguous(memory_format=found) for tensor in tensors]
    first, *others = (part.name for part in spec.inputs)
    yield f"all inputs in {name}" if others else f"{first} in {name}", formatted
    if others:
        yield f"{first} in {name} and {' and '.join(others)} contiguous", [formatted[0], *tensors[1:]]
    yield "transposed inputs", [laid_out(tensor, "transposed") for tensor in tensors]
