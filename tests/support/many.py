"""An operator with optional and variadic inputs, several dtypes and two outputs, one with a data-dependent size.

Its models consist of standard operators: no compiler, no torch, no exporter.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, helper

from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Model, Random, Tensor, Values
from tests.support.double import CELL
from tests.support.projects import with_reference
from tests.support.specs import EXACT, declare

REFERENCE = """
import numpy as np


def many(x, mask, others, *, axes, mode, strict):
    assert (axes, mode, strict) == ((0, -1), "sum", True)
    kept = np.ones(x.shape, bool) if mask is None else mask
    return sum(others, np.where(kept, x, x.dtype.type(0))), np.stack(np.nonzero(kept))
"""
SPEC = declare(
    "many(x: T[N], mask: bool[N]?, others: T[N]*, axes=(0, -1), mode='sum', strict=True)"
    " -> y: T like x, kept: int64[?, ?]",
    summary="Add up what is kept, and say where it is.",
    types={"T": ("float32", "int32", "int64")},
    tolerances={"custom": {}, "decomposed": {"float32": EXACT, "int32": EXACT, "int64": EXACT}},
    lowerings=("decomposed",),
)
MASK = Values(values=(True, False, True, True))


def case(name: str, *, mask: Tensor | None, others: int) -> Case:
    """Return a case with four elements per tensor."""
    x = Random(shape=(4,), deviation=9.0)
    return Case(name=name, inputs={"x": x, "mask": mask, "others": (x,) * others})


def with_model(dtype: str, *, mask: Tensor | None, others: int) -> Operator:
    """Return the operator with one model, of one case."""
    one = case("only", mask=mask, others=others)
    return Operator(spec=SPEC, models=(Model(name="model", types={"T": dtype}, cases=(one,)),))  # type: ignore[dict-item]


def node(inputs: list[str]) -> NodeProto:
    """Return the custom node, with every attribute."""
    return helper.make_node("Many", inputs, ["y", "kept"], domain="test.domain", axes=[0, -1], mode="sum", strict=1)


def model(nodes: list[NodeProto], inputs: Mapping[str, int], *, dtype: int) -> ModelProto:
    """Return a model of vectors; `inputs` maps names to element types."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, number, [4]) for name, number in inputs.items()],
        [
            helper.make_tensor_value_info("y", dtype, [4]),
            helper.make_tensor_value_info("kept", TensorProto.INT64, [1, None]),
        ],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("test.domain", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def decomposed(dtype: int, *, mask: bool, others: int, kept: str = "keep") -> ModelProto:
    """Return the operator in standard nodes; `kept` is the source of the second output."""
    inputs = {"x": dtype} | ({"mask": TensorProto.BOOL} if mask else {}) | {f"others_{n}": dtype for n in range(others)}
    nodes = [
        helper.make_node("Identity", ["mask"], ["keep"]) if mask else helper.make_node("Equal", ["x", "x"], ["keep"]),
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("zero", dtype, [], [0])),
        helper.make_node("Where", ["keep", "x", "zero"], ["sum_0"]),
        *(helper.make_node("Add", [f"sum_{n}", f"others_{n}"], [f"sum_{n + 1}"]) for n in range(others)),
        helper.make_node("Identity", [f"sum_{others}"], ["y"]),
        helper.make_node("NonZero", [kept], ["kept"]),
    ]
    return model(nodes, inputs, dtype=dtype)


def project(root: Path) -> Paths:
    """Make a project with the operator's reference in it."""
    return with_reference(root, "many", REFERENCE)


def write_model(paths: Paths, proto: ModelProto) -> None:
    """Write the model where the export stage does."""
    path = paths.model("many", "decomposed", CELL, "model")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
