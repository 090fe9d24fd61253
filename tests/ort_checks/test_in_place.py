"""Outputs that may have the memory of an input, `may_inplace`: ONNX Runtime gives them that memory, and verify finds a
kernel that then computes something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.version import minor
from opmatrix.codegen import write_code
from opmatrix.data import write_data
from opmatrix.data.arrays import Array
from opmatrix.declaration.load import Operator
from opmatrix.export import write_node_models
from opmatrix.ort_checks import verify
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.cells import Cell
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.search import draw_inputs
from opmatrix.spec import Case, Model, Random, Values
from opmatrix.toolchain import compile
from tests.support.building import with_native
from tests.support.specs import declare, outputs

pytestmark = [pytest.mark.compile, pytest.mark.ort]

CELL = Cell(torch=None, exporter="node", opset=18, ort=minor(installed().onnxruntime))
LAG = declare(
    "lag(x: T, by: T[]) -> before: T like by",
    *outputs("y: T like x", may_inplace="x"),
    summary="Move each element to the next place.",
    types={"T": ("float32", "bfloat16")},
)
REFERENCE = """\
import numpy as np

def lag(x, by):
    return by, np.concatenate([by.reshape(1), x.reshape(-1)])[: x.size].reshape(x.shape)
"""
KERNEL = """\
#pragma once
#include "opmatrix/half.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::lag {
template <typename T>
void lag(TensorView<const T> x, TensorView<const T> by, TensorView<T> before, TensorView<T> y) {
  before.data[0] = by.data[0];
  T last = by.data[0];
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const T now = x.data[i];
    y.data[i] = last;
    last = now;
  }
}
}  // namespace opmatrix::lag
"""


def models(dtype: str) -> tuple[Model, ...]:
    cases = tuple(
        Case(name=name, inputs={"x": Random(shape=shape, mean=2.0), "by": Values(values=3.0)})
        for name, shape in (("one", (1, 1)), ("rows", (3, 5)), ("empty", (0, 4)))
    )
    return (Model(name="only", types={"T": dtype}, dynamic={"x": ("N", "C")}, cases=cases),)  # type: ignore[dict-item]  # a dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_that_keeps_the_promise(dtype: str, tmp_path: Path) -> None:
    """tests/faults/differ.toml has kernels that do not."""
    paths = with_native(tmp_path, "lag", REFERENCE)
    operator = Operator(spec=replace(LAG, kernel=KERNEL), models=models(dtype))
    for stage in (draw_inputs, write_code, compile, write_data):
        stage.run(paths, operator)
    write_node_models.run(paths, operator, lowering="custom", cell=CELL)
    verify.run(paths, operator, lowering="custom", cell=CELL)
    assert verdict.read(paths.verdict("lag", "custom", CELL)).outcome == "verified"


SEEN = declare(
    "seen(x: float32, z: int64) -> same: int64[2]",
    *outputs("w: int64 like z", may_inplace="z"),
    *outputs("y: float32 like x", may_inplace="x"),
    summary="Copy x, and say whether the copy has its memory.",
    kernel="""\
#pragma once
#include "opmatrix/tensor_view.h"

namespace opmatrix::seen {
inline void seen(TensorView<const float> x, TensorView<const std::int64_t> z, TensorView<std::int64_t> same,
                 TensorView<std::int64_t> w, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = x.data[i];
  for (std::int64_t i = 0; i < z.numel(); ++i) w.data[i] = z.data[i];
  same.data[0] = x.data == y.data;
  same.data[1] = z.data == w.data;
}
}  // namespace opmatrix::seen
""",
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = with_native(tmp_path_factory.mktemp("seen"), "seen", "def seen(x, z): ...\n")
    write_code.run(paths, Operator(spec=SEEN, models=()))
    compile.run(paths, Operator(spec=SEEN, models=()))
    return paths.ort_library("seen")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(True, ["y", "y"], [1, 1]), (False, ["y", "y"], [0, 0]), (True, ["x", "y"], [0, 1]), (True, [], [0, 1])],
    ids=["between nodes", "inputs of the model", "x is read again", "y is an output of the model"],
)
@pytest.mark.parametrize("size", [8, "N"])
def test_onnx_runtime_gives_both_the_same_memory(
    size: int | str, before: bool, after: list[str], expected: list[int], seen: Path
) -> None:
    """Between nodes, where no other node reads the input, also with a size that only a run knows."""
    values = {"x": TensorProto.FLOAT, "z": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(f"{n}_in", dtype, [size]) for n, dtype in values.items()]
    nodes = [helper.make_node("Neg", [f"{n}_in"], [n]) for n in values] if before else []
    taken = list(values) if before else [f"{n}_in" for n in values]
    nodes.append(helper.make_node("Seen", taken, ["same", "w", "y"], domain="test.domain"))
    nodes.append(helper.make_node("Neg", ["w"], ["w_out"]))
    nodes += [helper.make_node("Add", after, ["sum"])] if after else []
    outputs = [helper.make_tensor_value_info("same", TensorProto.INT64, [2])]
    outputs += [helper.make_tensor_value_info("w_out", TensorProto.INT64, [size])]
    outputs += [helper.make_tensor_value_info("sum" if after else "y", TensorProto.FLOAT, [size])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test.domain", 1)]
    model = helper.make_model(helper.make_graph(nodes, "seen", inputs, outputs), opset_imports=opsets, ir_version=8)
    (session,) = OrtSessions(seen).sessions(model.SerializeToString(), settings=["optimised"]).values()
    fed: dict[str, Array] = {"x_in": np.arange(8, dtype=np.float32), "z_in": np.arange(8)}
    same, _, result = session.run(None, fed)
    assert same.tolist() == expected
    assert np.array_equal(result, fed["x_in"] * (-1 if before else 1) * (2 if after else 1))
