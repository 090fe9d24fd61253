"""`doit check` says where two of three agree: ONNX Runtime, onnx.reference, the inlined model, the expected outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.addons.check import run_model
from opmatrix.addons.check.parts import PartOptions
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError
from tests.addons.check.judged import judged
from tests.addons.check.test_blame import model

pytestmark = pytest.mark.ort


OF_ONNX_RUNTIME = {  # each wrong at 71b51ad8
    "one of two outputs is": model(
        "z, y = loc.f (x)", '<domain: "loc", opset_import: ["":17]> f (a) => (a, b) { b = Neg (a) }'
    ),
    "in a function of a function": model(
        "y = loc.g (x)",
        '<domain: "loc", opset_import: ["":17, "loc":1]> g (a) => (c) { b = loc.f (a) c = Neg (b) }',
        '<domain: "loc", opset_import: ["":17]> f (a) => (a) { }',
    ),
    "a function that nobody calls has no import": model(
        "y = Neg (x)", '<domain: "loc", opset_import: ["":17]> f (a) => (b) { b = loc.g (a) }'
    ),
    "one that nobody calls is recursive": model(
        "y = Neg (x)", '<domain: "loc", opset_import: ["":17, "loc":1]> f (a) => (b) { b = loc.f (a) }'
    ),
}


@pytest.mark.parametrize("text", OF_ONNX_RUNTIME.values(), ids=OF_ONNX_RUNTIME)
def test_what_onnx_runtime_alone_refuses_is_not_the_models_fault(text: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "unsupported", found
    two = "But onnx.reference and ONNX Runtime with the functions inlined agree with each other: two of three do"
    assert f"{two}. The model may be right. Inline the functions" in found.reason


@pytest.mark.parametrize("right", [True, False], ids=["which the reference computes", "other ones"])
@pytest.mark.parametrize("refuses", ["sessions", "call"])
def test_expected_outputs_and_the_reference_are_two_of_three(
    refuses: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RefusedError("planted") from RuntimeError("planted")

    x = np.float32([1, 2, 3])
    np.savez(tmp_path / "given.npz", x=x, y=-x if right else x)
    if refuses == "call":
        monkeypatch.setattr(run_model, "call", refused)
    else:
        monkeypatch.setattr(OrtSessions, "sessions", refused)
    options = PartOptions(inputs=("--inputs", str(tmp_path / "given.npz")))
    found = judged(model("y = Neg (x)"), tmp_path, options)
    assert found.outcome == ("unsupported" if right else "wrong"), found
    two = "But onnx.reference and given.npz agree with each other: two of three do. The model may be right"
    assert (two in found.reason) == right


def test_expected_outputs_alone_against_two_are_named(tmp_path: Path) -> None:
    x = np.float32([1, 2, 3])
    np.savez(tmp_path / "given.npz", x=x, y=x)
    found = judged(model("y = Neg (x)"), tmp_path, PartOptions(inputs=("--inputs", str(tmp_path / "given.npz"))))
    assert found.outcome == "wrong"
    assert "two of three agree, and the expected outputs do not" in found.reason


@pytest.mark.parametrize("opset", [10, 13, 18, 19, 21])
def test_a_node_that_only_a_later_reference_has_is_compared(opset: int, tmp_path: Path) -> None:
    """onnx 1.23 has no DequantizeLinear of version 10 and 13."""
    text = model(
        "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)",
        opset=opset,
        constants="<float s = {0.5}, uint8 z = {3}>",
    )
    found = judged(text, tmp_path)
    assert found.outcome == "right" and found.reason.endswith("2 nodes"), found
