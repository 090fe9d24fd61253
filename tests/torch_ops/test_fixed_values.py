"""A value of `TorchOp.fixed` that this torch does not have, such as float8 before 2.1."""

from __future__ import annotations

from typing import Any

import pytest

from opmatrix.basics.errors import ExportError
from opmatrix.signature.signature import WrittenArgument

pytestmark = pytest.mark.torch


def test_a_dtype_that_torch_lacks_is_named(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    from opmatrix.torch_ops.call import _value

    argument = WrittenArgument(name="dtype", keyword=False, value=None, constant="float8_e5m2", input=None, output=None)
    assert _value(argument) is torch.float8_e5m2
    monkeypatch.delattr(torch, "float8_e5m2")
    with pytest.raises(ExportError, match=r"^TorchOp.fixed gives 'dtype' the value float8_e5m2, which torch 2"):
        _value(argument)
