"""`doit compat` of operators with float8: torch computes nothing in it, so no gradient is taken of it or summed."""

from __future__ import annotations

import pytest
import torch

from opmatrix.declaration.load import Operator
from opmatrix.spec import Case, Model, Random
from opmatrix.torch_checks import compat_transforms
from opmatrix.torch_checks.compat_samples import bases, is_derived
from tests.support.specs import declare

pytestmark = pytest.mark.torch

SPEC = declare(
    "same(x: T) -> y: T like x",
    torch="aten::clone",
    onnx="my::Same",
    summary="As it is.",
    types={"T": ("float8_e5m2", "float32")},
    tolerances={},
)


def test_what_has_a_gradient() -> None:
    dtypes = (torch.float8_e5m2, torch.float8_e4m3fnuz, torch.bfloat16, torch.float64, torch.uint8)
    assert [is_derived(torch.zeros(1, dtype=dtype)) for dtype in dtypes] == [False, False, True, True, False]
    stored = torch.ones(2).to(torch.float8_e4m3fn)
    assert torch.isfinite(compat_transforms._weighted([torch.ones(2), stored]))


def test_float8_does_not_displace_the_dtypes_that_have_one() -> None:
    models = tuple(
        Model(name=dtype, types={"T": dtype}, cases=(Case(name=dtype, inputs={"x": Random(shape=(size,))}),))
        for dtype, size in (("float8_e5m2", 2), ("float32", 3))
    )
    found = bases(Operator(spec=SPEC, models=models))
    assert [sample.model.types["T"] for sample in found] == ["float32", "float8_e5m2"]
