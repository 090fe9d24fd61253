"""A small operator, y = 2 x, to plant faults in: no torch and no exporter, and a compiler only for its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from opmatrix.basics.version import minor
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.spec import Case, Lowering, Model, Random, Tensor, Tolerance, Values
from tests.support.projects import with_reference
from tests.support.specs import FLOATS, declare

CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort=minor(installed().onnxruntime))
REFERENCE = """
def double(x, *, factor):
    return x * factor
"""
TOLERANCES = {"float32": Tolerance(rtol=1e-6, atol=0.0), "float64": Tolerance(rtol=1e-12, atol=0.0)}
SPEC = declare(
    "double(x: T[...], factor=2.0) -> y: T like x",
    summary="Twice the input.",
    types=FLOATS,
    tolerances={"custom": TOLERANCES, "decomposed": TOLERANCES},
    lowerings=("custom", "decomposed"),
)
TENSORS: Mapping[str, Tensor] = {
    "plain": Random(shape=(2, 3)),
    "special": Values(values=((float("nan"), float("inf"), float("-inf")), (0.0, 1.0, 2.0))),
}
DYNAMIC = Model(
    name="dynamic",
    types={"T": "float32"},
    dynamic={"x": ("N", "M")},
    names={"x": "X", "y": "Y"},
    cases=(
        *(Case(name=name, inputs={"x": tensor}) for name, tensor in TENSORS.items()),
        Case(name="empty", inputs={"x": Random(shape=(0, 5))}),
        Case(name="large", inputs={"x": Random(shape=(40, 100))}),
    ),
)
OPERATOR = Operator(spec=SPEC, models=(DYNAMIC,))


def project(root: Path, *, reference: str = REFERENCE) -> Paths:
    """Make a project with the operator's reference in it."""
    return with_reference(root, "double", reference)


def with_case(tensor: Tensor) -> Operator:
    """Return the operator with one case."""
    case = Case(name="only", inputs={"x": tensor})
    return Operator(spec=SPEC, models=(replace(DYNAMIC, cases=(case,)),))


def model(lowering: Lowering, *, factor: float = 2.0, ir_version: int = 8, opset: int = 18) -> ModelProto:
    """Return the model that an exporter writes for `DYNAMIC`."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "M"]) for n in "XY")
    if lowering == "custom":
        nodes = [helper.make_node("Double", ["X"], ["Y"], domain="test.domain", factor=factor)]
    else:
        constant = helper.make_tensor("c", TensorProto.FLOAT, [], [factor])
        nodes = [
            helper.make_node("Constant", [], ["c"], value=constant),
            helper.make_node("Mul", ["X", "c"], ["Y"]),
        ]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("test.domain", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=imports, ir_version=ir_version)


def with_body(*, factor: float = 2.0) -> ModelProto:
    """Return the custom model with a function body."""
    made, body = model("custom"), model("decomposed", factor=factor).graph.node
    opset = [helper.make_opsetid("", 18)]
    made.functions.append(helper.make_function("test.domain", "Double", ["X"], ["Y"], body, opset, ["factor"]))
    return made


def write_model(paths: Paths, lowering: Lowering, proto: ModelProto | None = None) -> Path:
    """Write a model where the export stage does; for a decomposed one, also the one with a function body."""
    path = paths.model("double", lowering, CELL, "dynamic")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((proto or model(lowering)).SerializeToString())
    if lowering == "decomposed":
        paths.function_model("double", CELL, "dynamic").write_bytes(with_body().SerializeToString())
    return path


def exported(root: Path, operator: Operator, *lowerings: Lowering) -> Paths:
    """Make a project with the test data of `operator` and its models in some lowerings."""
    paths = project(root)
    write_data.run(paths, operator)
    for lowering in lowerings:
        write_model(paths, lowering)
    return paths
