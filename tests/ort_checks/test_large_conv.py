"""A large Conv, which onnx.reference computes only in many times its memory: the same numbers, in blocks."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opmatrix.ort_checks import evaluator
from opmatrix.ort_checks.evaluator import Conv

NODES = {
    "plain": ((2, 3, 9, 8), (4, 3, 3, 2), {}),
    "pads and strides": ((2, 3, 9, 8), (4, 3, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 3]}),
    "dilations": ((1, 3, 13, 11), (2, 3, 3, 2), {"dilations": [3, 2], "pads": [2, 2, 2, 2]}),
    "groups": ((2, 6, 7, 5), (4, 3, 3, 3), {"group": 2}),
    "depthwise": ((1, 5, 7, 6), (5, 1, 3, 3), {"group": 5, "pads": [1] * 4}),
    "upper": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "lower": ((1, 2, 8, 7), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    "valid": ((1, 2, 8, 7), (3, 2, 2, 3), {"auto_pad": "VALID"}),
    "one axis": ((2, 3, 17), (4, 3, 5), {"pads": [1, 2], "strides": [2]}),
    "three axes": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
}


def runs(bias: bool, more: dict[str, Any]) -> tuple[ReferenceEvaluator, ReferenceEvaluator]:
    made = helper.make_node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["y"], **more)
    values = [helper.make_tensor_value_info(name, 1, None) for name in ("x", "w", "b", "y")]
    graph = helper.make_graph([made], "g", values[: 3 if bias else 2], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model), ReferenceEvaluator(model, new_ops=[Conv])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize(("x", "w", "more"), NODES.values(), ids=NODES)
def test_it_is_that_of_onnx(
    x: tuple[int, ...],
    w: tuple[int, ...],
    more: dict[str, Any],
    block: int,
    bias: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluator, "_COLUMNS", 0)
    monkeypatch.setattr(evaluator, "_BLOCK", block)
    random = np.random.default_rng(0)
    fed = {"x": random.standard_normal(x).astype(np.float32), "w": random.standard_normal(w).astype(np.float32)}
    fed |= {"b": random.standard_normal(w[0]).astype(np.float32)} if bias else {}
    theirs, ours = (run.run(None, fed)[0] for run in runs(bias, more))
    assert ours.dtype == np.float32 and ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_it_takes_memory_for_a_block_alone() -> None:
    """That of onnx would take 200 MB for a Conv of this size."""
    fed = {"x": np.ones((1, 8, 320, 320), np.float32), "w": np.ones((8, 8, 3, 3), np.float32)}
    _, ours = runs(False, {})
    tracemalloc.start()
    try:
        (y,) = ours.run(None, fed)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (y == 72).all() and most < 60e6
