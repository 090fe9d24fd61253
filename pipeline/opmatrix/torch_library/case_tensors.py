"""The torch tensors of a case, and the arguments that an operator takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opmatrix.declaration.model_inputs import case_arguments, graph_inputs
from opmatrix.spec import Case, Model, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.torch_library.strided_tensors import strided


def tensors(spec: OpSpec, model: Model, case: Case, arrays: Sequence[Array]) -> list[torch.Tensor]:
    """Return `arrays`, one for each tensor of the case, with the declared strides."""
    inputs = graph_inputs(spec, model, case)
    return [strided(array, item.tensor.layout) for item, array in zip(inputs, arrays, strict=True)]


def arguments(spec: OpSpec, case: Case, flat: Sequence[torch.Tensor]) -> list[Any]:
    """Return one argument per input: a tensor, None for an absent one, a list for a variadic one."""
    return [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, case, flat)]
