"""The gradient in a wheel whose kernel has no float64, or whose gradient is not the derivative, must run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import numpy as np
import pytest

from tests.support.forked import forked

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("dtype", "declared", "factor", "expected"),
    [
        ("float32", "", 2.0, ""),
        ("float32", "", None, "plain: the gradient: RuntimeError: "),
        ("float64", "straight-through", 3.0, ""),
        ("float64", "", 3.0, "plain: the gradient: GradcheckError: Jacobian mismatch for output 0 "),
    ],
)
def test_the_formula_runs(dtype: str, declared: str, factor: float | None, expected: str, tmp_path: Path) -> None:
    def run() -> None:
        import onnx
        import torch

        from opmatrix.basics.errors import RegisterError
        from opmatrix.wheel import use_unpacked

        def fail(problem: str) -> NoReturn:
            raise RegisterError(problem)

        library = torch.library.Library("used", "DEF")
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: 2 * x, "CPU")
        torch.library.register_autograd(
            "used::double", lambda ctx, grad: grad * factor if factor else None, setup_context=lambda *_, **__: None
        )
        packed = ModuleType("packed")
        packed.NOT_A_DERIVATIVE = declared  # type: ignore[attr-defined]
        sys.modules["my_ops._operators.double.torch_op"] = packed
        (tmp_path / "input_0.pb").write_bytes(
            onnx.numpy_helper.from_array(np.arange(3, dtype=dtype)).SerializeToString()
        )
        model = {"inputs": ["x"], "arguments": [0], "by_position": [[0, None]], "by_name": []}
        model["cases"] = [{"name": "plain", "data": str(tmp_path)}]
        use_unpacked.fail = fail  # type: ignore[assignment]  # that of the package prints, and ends the process
        job = {"name": "double", "torch": "used::double", "models": [model], "torch_op": True, "without": []}
        use_unpacked.check_gradient("my_ops", job)

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children

    message = forked(run, tmp_path / "output")
    assert message.startswith(expected) if expected else message == ""
