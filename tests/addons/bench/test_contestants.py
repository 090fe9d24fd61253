"""What prepares a contestant: sessions that read scalars and empty arrays in place, and a call that raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opmatrix.addons.bench import contestants, measure
from opmatrix.addons.bench.contestants import Contestant, Entrant, SkippedError, bound
from opmatrix.addons.bench.forked import Forked
from opmatrix.addons.bench.turns import Expected, Turns
from opmatrix.bench.spec import Bench, Row
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Random
from tests.support.projects import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.ort]


def test_a_session_reads_a_scalar_and_an_empty_array() -> None:
    import onnxruntime

    ends = [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["b"])], "neg", ends, [helper.make_empty_tensor_value_info("b")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
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
    import onnxruntime

    text = helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(np.array(["1", "2"], object)))
    cast = helper.make_node("Cast", ["a"], ["b"], to=kind)
    graph = helper.make_graph([text, cast], "cast", [], [helper.make_empty_tensor_value_info("b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
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
