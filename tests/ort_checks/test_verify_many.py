"""Optional and variadic inputs, many dtypes, several outputs: data, model, reference evaluator and verdict."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.errors import DataError, VerifyError
from opmatrix.data import dataset, write_data
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import node_inputs
from opmatrix.ort_checks import verify
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.spec import Case, Dims, FromKernel, Model, Tensor, Values
from tests.support.double import CELL
from tests.support.many import MASK, SPEC, decomposed, model, node, project, with_model, write_model
from tests.support.specs import EXACT, declare

pytestmark = pytest.mark.ort

DTYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return project(tmp_path)


def run(paths: Paths, operator: Operator) -> None:
    verify.run(paths, operator, lowering="decomposed", cell=CELL)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [None, MASK], ids=["absent", "present"])
@pytest.mark.parametrize("others", [1, 3])
def test_present_and_absent_inputs_are_verified(paths: Paths, dtype: str, mask: Tensor | None, others: int) -> None:
    operator = with_model(dtype, mask=mask, others=others)
    write_data.run(paths, operator)
    names = ["x", *(["mask"] if mask else []), *(f"others_{n}" for n in range(others))]
    assert list(dataset.read(paths.data("many", "model", 0)).inputs) == names
    write_model(paths, decomposed(DTYPES[dtype], mask=bool(mask), others=others))
    run(paths, operator)
    assert verdict.read(paths.verdict("many", "decomposed", CELL)).outcome == "verified"


def test_the_tensors_of_a_variadic_input_differ(paths: Paths) -> None:
    write_data.run(paths, with_model("float32", mask=None, others=2))
    found = dataset.read(paths.data("many", "model", 0)).inputs
    assert len({found[name].tobytes() for name in ("x", "others_0", "others_1")}) == 3


@pytest.mark.parametrize(
    ("mask", "inputs"), [(None, ["x", "", "others_0", "others_1"]), (MASK, ["x", "mask", "others_0", "others_1"])]
)
def test_the_reference_evaluator_runs_the_custom_node(paths: Paths, mask: Tensor | None, inputs: list[str]) -> None:
    operator = with_model("int64", mask=mask, others=2)
    write_data.run(paths, operator)
    assert list(node_inputs(SPEC, operator.models[0])) == inputs
    found = dataset.read(paths.data("many", "model", 0))
    types = dict.fromkeys(found.inputs, TensorProto.INT64) | ({"mask": TensorProto.BOOL} if mask else {})
    oracle = ReferenceRun(model([node(inputs)], types, dtype=TensorProto.INT64), [(SPEC, Reference(paths, SPEC))])
    for output, expected in zip(oracle.run(None, found.inputs), found.outputs.values(), strict=True):
        np.testing.assert_array_equal(output, expected, strict=True)


def test_the_wrong_output_is_named(paths: Paths) -> None:
    """An integer that is off by one is a mismatch."""
    operator = with_model("int64", mask=MASK, others=1)
    write_data.run(paths, operator)
    write_model(paths, decomposed(TensorProto.INT64, mask=True, others=1, kept="x"))
    with pytest.raises(VerifyError, match=r"output 'kept': shape is \(1, 4\), expected \(1, 3\)"):
        run(paths, operator)
    folder = paths.data("many", "model", 0)
    found = dataset.read(folder)
    dataset.write(folder, DataSet(inputs=found.inputs, outputs={**found.outputs, "y": found.outputs["y"] + 1}))
    write_model(paths, decomposed(TensorProto.INT64, mask=True, others=1))
    with pytest.raises(VerifyError, match=r"output 'y': 4 of 4 elements differ beyond rtol=0 atol=0"):
        run(paths, operator)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (FromKernel(rank=1), r"gives 'kept' the shape \(1, 4\), declared: rank 1"),
        (Dims(dims=(1, "N")), ""),
        (Dims(dims=("N // 4", "2*N - 4")), ""),
        (Dims(dims=(1, "N + 1")), r"the shape \(1, 4\); the shape rule, .* gives \(1, 5\)"),
        (Dims(dims=(1, "N - 5")), "'N - 5' is -1 with {'N': 4}"),
        (Dims(dims=(1, "N // (N - 4)")), "divides by zero"),
        (Dims(dims=(1, "N / 1")), "'N / 1' is not an expression of sizes; allowed: names, numbers"),
    ],
)
def test_a_declared_size(paths: Paths, shape: FromKernel | Dims, message: str) -> None:
    outputs = (SPEC.outputs[0], replace(SPEC.outputs[1], shape=shape))
    operator = replace(with_model("int64", mask=None, others=1), spec=replace(SPEC, outputs=outputs))
    with pytest.raises(DataError, match=message) if message else nullcontext():
        write_data.run(paths, operator)


TEXT = declare("text(x: string) -> y: string like x", summary="The same text.", lowerings=("decomposed",))


@pytest.mark.parametrize("expected", ["größer", "other"])
def test_strings(tmp_path: Path, expected: str) -> None:
    paths = Paths(tmp_path)
    paths.op("text").mkdir(parents=True)
    paths.reference("text").write_text(f"import numpy as np\ndef text(x): return np.array(['a', '{expected}', ''])")
    case = Case(name="only", inputs={"x": Values(values=("a", "größer", ""))})
    operator = Operator(spec=TEXT, models=(Model(name="model", cases=(case,)),))
    write_data.run(paths, operator)
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, [3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = paths.model("text", "decomposed", CELL, "model")
    path.parent.mkdir(parents=True)
    path.write_bytes(proto.SerializeToString())
    wrong = pytest.raises(VerifyError, match=r"1 of 3 elements differs .*expected 'other', got 'größer'")
    with wrong if expected == "other" else nullcontext():
        run(paths, operator)


def test_a_model_declared_unsupported_must_fail(paths: Paths) -> None:
    operator = with_model("int64", mask=None, others=1)
    write_data.run(paths, operator)
    unsupported = replace(operator, models=(replace(operator.models[0], unsupported="no kernel for it"),))
    write_model(paths, decomposed(TensorProto.INT64, mask=False, others=1))
    with pytest.raises(VerifyError, match=r"declared unsupported \(no kernel for it\), but it runs. Remove"):
        run(paths, unsupported)
    later = replace(operator, models=(replace(operator.models[0], min_opset={"decomposed": 19}),))
    with pytest.raises(VerifyError, match=r"declared unsupported \(decomposed from opset 19 on\), but it runs. Remove"):
        run(paths, later)
    run(paths, replace(operator, models=(replace(operator.models[0], min_opset={"decomposed": 18}),)))
    proto = model([node(["x", "", "others_0"])], dict.fromkeys(["x", "others_0"], TensorProto.INT64), dtype=7)
    write_model(paths, proto)
    run(paths, unsupported)
    found = verdict.read(paths.verdict("many", "decomposed", CELL))
    assert found.outcome == found.cases[0].outcome == "unsupported"
    assert found.detail.startswith("no kernel for it (ONNX Runtime: the model has a node test.domain::Many, and no ")


def test_a_missing_model_is_failed_and_not_unsupported(paths: Paths) -> None:
    operator = with_model("int64", mask=None, others=1)
    write_data.run(paths, operator)
    with pytest.raises(VerifyError, match="not a readable model"):
        run(paths, replace(operator, models=(replace(operator.models[0], unsupported="no kernel for it"),)))


def test_a_contrib_operator_needs_no_library(tmp_path: Path) -> None:
    """com.microsoft::Inverse is ONNX Runtime's own."""
    paths = Paths(tmp_path)
    paths.op("inverted").mkdir(parents=True)
    paths.reference("inverted").write_text("import numpy as np\ndef inverted(x): return np.linalg.inv(x)")
    spec = declare(
        "inverted(x: T) -> y: T like x",
        onnx="com.microsoft::Inverse",
        summary="The inverse.",
        types={"T": ("float64",)},
        tolerances={"custom": {"float64": replace(EXACT, rtol=1e-12)}},
        runtime="contrib",
    )
    case = Case(name="only", inputs={"x": Values(values=((1.0, 2.0), (3.0, 5.0)))})
    operator = Operator(spec=spec, models=(Model(name="model", types={"T": "float64"}, cases=(case,)),))
    write_data.run(paths, operator)
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [2, 2]) for name in "xy"]
    nodes = [helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft")]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=imports, ir_version=8
    )
    path = paths.model("inverted", "custom", CELL, "model")
    path.parent.mkdir(parents=True)
    path.write_bytes(proto.SerializeToString())
    verify.run(paths, operator, lowering="custom", cell=CELL)
    assert not sorted(paths.build.glob("compile/*"))
