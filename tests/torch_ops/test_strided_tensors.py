"""The same values under every layout, with the layout's strides. A value of `TorchOp.fixed` that this torch does not
have, such as float8 before 2.1.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from opmatrix.basics.errors import ExportError, RegisterError
from opmatrix.signature.signature import WrittenArgument
from opmatrix.spec import MemoryLayout
from opmatrix.torch_ops.call import _value
from opmatrix.torch_ops.case_tensors import strided

pytestmark = pytest.mark.torch

SHAPES = [(), (5,), (2, 3), (2, 3, 4), (0, 3), (1, 1, 1)]


@pytest.mark.parametrize("layout", [x for x in get_args(MemoryLayout) if x != "expanded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_values_are_the_same(layout: MemoryLayout, shape: tuple[int, ...], dtype: str) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    tensor = strided(array, layout)
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert np.array_equal(tensor.numpy(), array)
    tensor.add_(1)
    assert np.array_equal(array, np.arange(array.size).reshape(shape))  # the tensor has its own memory


@pytest.mark.parametrize(
    ("layout", "strides"),
    [("contiguous", (12, 4, 1)), ("transposed", (12, 1, 3)), ("sliced", (27, 9, 2)), ("flipped", (1, 2, 6))],
)
def test_the_strides_are_those_of_the_layout(layout: MemoryLayout, strides: tuple[int, ...]) -> None:
    assert strided(np.zeros((2, 3, 4)), layout).stride() == strides


def test_an_expanded_axis_has_stride_0_and_along_it_the_same_values() -> None:
    array = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    tensor = strided(array, "expanded")
    assert tensor.stride() == (0, 1) and np.array_equal(tensor.numpy(), array)
    with pytest.raises(RegisterError, match="along no axis are its numbers the same"):
        strided(np.eye(2), "expanded")


def test_a_dtype_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    argument = WrittenArgument(name="dtype", keyword=False, value=None, constant="float8_e5m2", input=None, output=None)
    assert _value(argument) is torch.float8_e5m2
    monkeypatch.delattr(torch, "float8_e5m2")
    with pytest.raises(ExportError, match=r"^TorchOp.fixed gives 'dtype' the value float8_e5m2, which torch 2"):
        _value(argument)
