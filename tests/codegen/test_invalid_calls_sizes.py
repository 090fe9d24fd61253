"""Sizes that a declaration computes: both bindings and the fake kernel agree with Python, and none is negative."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.search.invalid_calls import valid_call
from tests.support.building import build, copy_project
from tests.support.forked import forked

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

SPEC = '''
from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="windows",
    summary="Windows of three, two apart.",
    torch=TorchOp(name="test::windows"),
    onnx=OnnxOp(domain="test.windows", op_type="Windows"),
    inputs=(Input(name="x", type="float32", dims=("N", "M")),),
    outputs=(Output(name="y", type="float32", shape=Dims(dims=("(N - 3) // 2 + 1", "2*M"))),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
    kernel="""
#pragma once
#include "opmatrix/tensor_view.h"
namespace opmatrix::windows {
inline void windows(TensorView<const float>, TensorView<float> y) {
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data[i] = 1;
}
}  // namespace opmatrix::windows
""",
)
'''
CASES = """
from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="plain", cases=(Case(name="plain", inputs={"x": Random(shape=(5, 2))}),)),)
"""
SHAPES = {(5, 2): (2, 4), (4, 1): (1, 2), (3, 0): (1, 0), (2, 3): (0, 6), (1, 3): (0, 6)}
TOO_SMALL = "windows: y would have the shape (-1, 4); its inputs are too small"


def test_negative_sizes_are_refused(tmp_path: Path) -> None:
    paths = copy_project(tmp_path)
    paths.op("windows").mkdir()
    paths.spec("windows").write_text(SPEC)
    paths.cases("windows").write_text(CASES)
    operator = build(paths, "windows")
    call = valid_call(operator)

    def of(*shape: int) -> Any:
        return replace(call, inputs=(np.zeros(shape, np.float32),))

    def in_torch() -> None:
        import torch

        from opmatrix.export.generated_modules import load_generated
        from opmatrix.torch_checks.invalid_calls import call as called
        from opmatrix.torch_ops import load

        loaded = load.load(paths, operator)
        fake = load_generated(paths, "windows").fake.fake
        for shape, wanted in SHAPES.items():
            assert tuple(called(operator, loaded.overload, of(*shape)).shape) == wanted
            assert tuple(fake(torch.zeros(shape)).shape) == wanted
        with pytest.raises(RuntimeError) as caught:
            called(operator, loaded.overload, of(0, 2))
        assert str(caught.value) == TOO_SMALL

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.fuzz import Fuzz
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        fuzz = Fuzz(operator, OrtSessions(paths.ort_library("windows")))
        for shape, wanted in SHAPES.items():
            assert fuzz.run(of(*shape))[0].shape == wanted
        with pytest.raises(RefusedError, match="windows: y would have the shape"):
            fuzz.run(of(0, 2))

    assert forked(in_torch, tmp_path / "output") == ""
    assert forked(in_onnx_runtime, tmp_path / "output") == ""
