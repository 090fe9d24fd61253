"""Call the operator in torch with what its declaration forbids: each call must be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pipeline.data.arrays import Array
from pipeline.data.illegal import Call, Illegal, illegal
from pipeline.errors import RegisterError
from pipeline.library.torch_call import torch_attributes
from pipeline.load import Operator

# What torch, and a binding by way of torch, refuse a call with.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


def results(operator: Operator, overload: Callable[..., Any]) -> list[dict[str, str]]:
    """Return what was tried. Raises RegisterError with every call that is answered."""
    tried = [*illegal(operator)]
    if problems := [*_problems(operator, overload, tried)]:
        raise RegisterError("\n".join(problems))
    return [{"check": "forbidden", "call": str(one)} for one in tried]


def _problems(operator: Operator, overload: Callable[..., Any], tried: Sequence[Illegal]) -> Iterator[str]:
    for one in tried:
        try:
            call(operator, overload, one.call)
        except REFUSALS:
            continue
        yield f"{operator.name} in torch computes what its declaration forbids: {one}"


def call(operator: Operator, overload: Callable[..., Any], given: Call) -> Any:
    """Call the operator as torch's users do."""
    arguments = [[torch.from_numpy(a) for a in i] if isinstance(i, tuple) else _tensor(i) for i in given.inputs]
    return overload(*arguments, **torch_attributes(operator.spec, given.model))


def _tensor(array: Array | None) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)
