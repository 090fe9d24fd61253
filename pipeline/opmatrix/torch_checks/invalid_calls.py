"""The "forbidden" part of register: make each call of opmatrix.testdata.invalid_calls in torch, which must raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.errors import RegisterError
from opmatrix.testdata.invalid_calls import Call, invalid_calls, missing_calls, valid_call, valid_call_fails
from opmatrix.testdata.numpy_reference import Argument
from opmatrix.torch_library.call import CALL_ERRORS, with_attributes
from opmatrix.torch_library.case_tensors import as_tensor


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


def call(operator: Operator, overload: Callable[..., Any], given: Call) -> Any:
    """Call the operator in torch with NumPy arguments."""
    return with_attributes(overload, operator.spec, given.model)(*map(_tensors, given.inputs))


def _tensors(argument: Argument) -> Any:
    if isinstance(argument, tuple):
        return [as_tensor(array) for array in argument]
    return None if argument is None else as_tensor(argument)
