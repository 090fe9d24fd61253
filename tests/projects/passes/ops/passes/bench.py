"""Peers that are right, wrong, missing, raise or crash, and three rows."""

import os
import signal
from typing import Any

from opmatrix.bench.spec import Bench, Function, OnnxModel, OnnxNode, Row
from opmatrix.spec import Random

OWN = "build/compile/passes/libpasses_ort.so"


def wrong(x: Any) -> Any:
    return x * 0 + 3


def kills(x: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


BENCH = Bench(
    rows=(
        Row(name="plain", inputs={"x": Random(shape=(256,))}),
        Row(name="no_truth", inputs={"x": Random(shape=(64,))}, no_truth="it is known"),
        Row(name="crash", inputs={"x": Random(shape=(64,))}),
    ),
    peers=(
        Function(name="wrong", function=wrong, takes="numpy", rows=("plain",)),
        Function(name="raises", function=lambda x: 1 / 0, compile=False, rows=("plain",)),
        Function(name="elsewhere", function="no_such_module:f", compile=False, rows=("plain",)),
        Function(name="kills", function=kills, compile=False, rows=("crash",)),
        OnnxNode(name="Neg", op_type="Neg", outputs=lambda made: {}, rows=("plain",)),
        OnnxNode(name="itself", op_type="Passes", domain="bench_ops", library=OWN, rows=("plain",)),
        OnnxNode(name="lost", op_type="X", domain="d", library="libx.so", rows=("plain",)),
        OnnxModel(name="graph", path="peers/neg.onnx", rows=("plain",)),
    ),
    flops="400*N",
)
