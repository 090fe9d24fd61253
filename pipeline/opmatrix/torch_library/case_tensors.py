"""The tensors of a case in torch, and the arguments that an operator takes them as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opmatrix.declaration.model_inputs import case_arguments, graph_inputs
from opmatrix.spec import Case, Model, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.torch_library.strided_tensors import strided


def tensors(spec: OpSpec, model: Model, case: Case, numbers: Sequence[Array]) -> list[torch.Tensor]:
    """Return `numbers`, one array per tensor of the case, with the strides that the case asks for."""
    given = zip(graph_inputs(spec, model, case), numbers, strict=True)
    return [strided(array, feed.tensor.layout) for feed, array in given]


def arguments(spec: OpSpec, case: Case, flat: Sequence[torch.Tensor]) -> list[Any]:
    """Return one argument per input: a tensor, None for an absent one, a list for a variadic one."""
    return [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, case, flat)]
