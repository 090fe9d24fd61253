"""What prepares a contestant: sessions that read in place, a call that raises, and the errors against a truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opmatrix.addons.bench import contestants, measure
from opmatrix.addons.bench.contestants import Contestant, Entrant, SkippedError, bound
from opmatrix.addons.bench.forked import Errors, Forked
from opmatrix.addons.bench.turns import Expected, Turns, errors
from opmatrix.bench.spec import Bench, Row
from opmatrix.data.arrays import BLOCK
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Random, Tolerance
from tests.support.projects import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.ort]


def session_of(*nodes: Any, inputs: Sequence[Any] = (), opset: int = 18) -> Any:
    """Return a session that gives b."""
    import onnxruntime

    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_empty_tensor_value_info("b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_session_reads_a_scalar_and_an_empty_array() -> None:
    ends = [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)]
    session = session_of(helper.make_node("Neg", ["a"], ["b"]), inputs=ends)
    for values in (np.array(2.0, np.float32), np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32).T):
        (made,) = contestants.read(bound(session, {"a": values})())
        assert made.shape == values.shape and made.tolist() == (-values).tolist()


def test_a_row_that_no_memory_holds_fails_alone() -> None:
    x = Random(shape=(10**15,))
    row = Row(name="huge", types={"T": "float32"}, inputs={"x": x, "y": x}, attributes={"alpha": 1.0})
    job: Any = SimpleNamespace(operator=load_operator(Paths(ROOT), "dual_residual"), bench=Bench(rows=(row,)))
    (found,) = measure.measured(job)
    assert found["failed"].startswith("Unable to allocate ") and found["failed"].endswith(" Give the row smaller sizes")


@pytest.mark.parametrize("kind", [TensorProto.STRING, TensorProto.INT4])
def test_outputs_that_are_no_bytes_of_an_array_are_not_read(kind: int) -> None:
    text = helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(np.array(["1", "2"], object)))
    session = session_of(text, helper.make_node("Cast", ["a"], ["b"], to=kind), opset=21)
    with pytest.raises(SkippedError, match=r"^doit bench cannot time strings and 4-bit numbers in "):
        contestants.read(bound(session, {})())


def test_a_peer_that_raises_at_a_later_call_is_skipped() -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("no more")

    def start() -> Any:
        entrants: Any = SimpleNamespace(threads=1, arrays=[])
        turns = Turns(entrants, processors=(), expected=Expected(outputs={}), measures=False)
        made = Contestant(call, lambda _: {})
        return lambda _: turns._prepared(Entrant("peer", "torch", lambda: made))

    with Forked(start) as process:
        assert process.ask(None).skipped == "OSError: no more"


TOLERANCES = {"float32": Tolerance(rtol=1e-6, atol=0.0)}


def of(actual: list[float], truth: list[float], *, dtype: str = "float32") -> Errors:
    return errors({"y": np.array(actual, dtype)}, {"y": np.array(truth, np.float64)}, TOLERANCES)


def test_an_error_is_absolute_and_a_fraction_of_the_tolerance() -> None:
    found = of([1.0, 2.000001], [1.0, 2.0])
    assert found.output == "y" and not found.problem
    assert found.absolute == pytest.approx(9.5e-7, rel=0.01) and found.tolerance_used == pytest.approx(0.477, rel=0.01)
    nearest = of([0.1], [0.1])
    assert nearest.tolerance_used == 0 and 0 < (nearest.absolute or 0) < 1e-8, "the nearest number of the dtype"
    assert of([], []).tolerance_used == 0
    other = of([1.0, 2.0], [1.0])
    assert other.absolute is None and other.problem == "output 'y' has the shape (2,), the truth (1,)"


def test_a_dtype_without_a_tolerance() -> None:
    """As that of a peer which returns float64 for float32. Integers need none."""
    found = of([1.0, 3.0], [1.0, 2.0], dtype="float16")
    assert (found.absolute, found.tolerance_used) == (1.0, None)
    assert found.problem == "the operator has no tolerance for float16"
    made, truth = {"y": np.array([3.0]), "z": np.array([1.5], "f4")}, {"y": np.array([2.0]), "z": np.ones(1)}
    both = errors(made, truth, TOLERANCES)
    assert both.output == "y" and both.problem
    used = [errors({"y": np.array([1, 2])}, {"y": np.array([1, last])}, {}).tolerance_used for last in (2, 3)]
    assert used == [0, math.inf]


def test_an_error_in_the_last_block() -> None:
    wanted = np.zeros(3 * BLOCK // 2)
    made = wanted.astype(np.float32)
    made[-1] = 2
    assert errors({"y": made}, {"y": wanted}, {"float32": Tolerance(rtol=0.0, atol=1.0)}).tolerance_used == 2


@pytest.mark.parametrize(
    ("actual", "truth", "used"),
    [(math.nan, math.nan, 0), (math.inf, math.inf, 0), (math.inf, 1e300, 0), (math.inf, -math.inf, math.inf),
     (math.nan, 1.0, math.inf), (1.0, math.nan, math.inf), (1.0, math.inf, math.inf)],
)  # fmt: skip
def test_values_that_are_not_finite(actual: float, truth: float, used: float) -> None:
    """1e300 is an infinity in float32."""
    assert of([actual, 1.0], [truth, 1.0]).tolerance_used == used


def test_the_worst_output_counts_and_others_are_left_out() -> None:
    truth = {"y": np.array([1.0]), "z": np.array([1.0])}
    made = {"y": np.array([1.0], np.float32), "z": np.array([1.5], np.float32), "other": np.array([9.0])}
    assert errors(made, truth, TOLERANCES).output == "z"
    assert errors({"other": np.array([9.0])}, truth, {}).problem == "it has no output that the truth has"
