"""Each fault in a model, in data or in the environment ends in a verdict with its reason."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from onnx import ModelProto, helper

from opmatrix.basics.errors import UsageError, VerifyError
from opmatrix.data import dataset, write_data
from opmatrix.data.arrays import Array
from opmatrix.data.dataset import DataSet
from opmatrix.ort_checks import verify
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import Verdict
from opmatrix.spec import Case, Random, Tolerance
from tests.support import double
from tests.support.double import CELL, DYNAMIC, exported, model, write_model

pytestmark = pytest.mark.ort

# Without a custom form there is no function body; tests/export/test_function_body.py tests those.
OPERATOR = replace(double.OPERATOR, spec=replace(double.SPEC, lowerings=("decomposed",)))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project in which everything is right."""
    return exported(tmp_path, OPERATOR, "decomposed")


def run(paths: Paths, *, case: str | None = None) -> None:
    verify.run(paths, OPERATOR, lowering="decomposed", cell=CELL, case=case)


def refused(paths: Paths) -> tuple[Verdict, str]:
    """Return the verdict and the message of a run that must fail."""
    with pytest.raises(VerifyError) as caught:
        run(paths)
    return verdict.read(paths.verdict("double", "decomposed", CELL)), str(caught.value)


def expected_output(paths: Paths, index: int) -> Array:
    return dataset.read(paths.data("double", "dynamic", index)).outputs["Y"]


def change_expected(paths: Paths, index: int, output: Array) -> None:
    folder = paths.data("double", "dynamic", index)
    dataset.write(folder, DataSet(inputs=dataset.read(folder).inputs, outputs={"Y": output}))


def plant_seven(paths: Paths, index: int) -> None:
    """Change one of the expected elements."""
    wrong = expected_output(paths, index).copy()
    wrong[1, 2] = 7
    change_expected(paths, index, wrong)


def test_a_project_without_faults_is_verified(paths: Paths) -> None:
    run(paths)
    found = verdict.read(paths.verdict("double", "decomposed", CELL))
    assert found.outcome == "verified"
    assert [c.case for c in found.cases] == ["plain", "special", "empty", "large"]
    assert all(c.error == 0 and c.tolerance_used == 0 for c in found.cases)


def test_the_errors_of_failing_cases_are_beside_the_verdict_until_they_pass(paths: Paths) -> None:
    """A replay measures nothing."""
    path = paths.mismatches(paths.verdict("double", "decomposed", CELL))
    right = [expected_output(paths, n) for n in range(4)]
    run(paths)
    assert not path.exists(), "a case that passes costs nothing"
    for index in (0, 1, 3):
        plant_seven(paths, index)
    change_expected(paths, 2, np.zeros((0, 6), np.float32))
    with pytest.raises(VerifyError):
        run(paths, case="plain")
    assert not [*paths.build.rglob("*.mismatches.json")]
    refused(paths)
    found = json.loads(path.read_text())["mismatches"]
    assert [one["case"] for one in found] == ["plain", "special", "empty"], "the first three of four"
    plain, _, empty = found
    assert (plain["output"], plain["worst"]["at"], plain["worst"]["expected"]) == ("Y", [1, 2], 7.0)
    assert plain["actual_is"] == "ONNX Runtime, optimised" and plain["expected_is"] == "reference in float64"
    assert plain["inputs"] == [{"name": "X", "dtype": "float32", "shape": [2, 3]}]
    assert empty["problem"] == "shape is (0, 5), expected (0, 6)"
    for index, output in enumerate(right):
        change_expected(paths, index, output)
    run(paths)
    assert not path.exists()


def test_what_wrong_cases_have_in_common_is_named(tmp_path: Path) -> None:
    """Cases whose last axis has 17 elements or more are wrong."""
    sizes = [1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 20, 33, 40]
    cases = tuple(Case(name=f"w{size}", inputs={"x": Random(shape=(2, size))}) for size in sizes)
    dynamic = replace(DYNAMIC, cases=(*cases, Case(name="empty", inputs={"x": Random(shape=(0, 64))})))
    operator = replace(OPERATOR, models=(dynamic,))
    paths = exported(tmp_path, operator, "decomposed")
    for index, size in enumerate(sizes):
        if size > 16:
            change_expected(paths, index, np.zeros((2, size), np.float32))
    with pytest.raises(VerifyError) as caught:
        verify.run(paths, operator, lowering="decomposed", cell=CELL)
    told = "Over all cases: wrong from x.shape[1] = 17 on (4 of 4 cases; right up to x.shape[1] = 16 in 9)"
    assert f"\n  {told}" in str(caught.value), str(caught.value)
    path = paths.verdict("double", "decomposed", CELL)
    assert verdict.read(path).detail.splitlines()[-1].startswith(told)
    over = json.loads(paths.mismatches(path).read_text())["over"]
    assert over["in_common"] in told + "; the same cases: from x.numel() = 34 on" and sum(over["wrong"]) == 4
    assert over["sizes"]["x.shape[1]"] == [*sizes, 64] and over["cases"][0] == "w1/dynamic"


def test_the_model_becomes_a_complete_backend_test(paths: Paths) -> None:
    folder = paths.model("double", "decomposed", CELL, "dynamic").parent
    (folder / "test_data_set_9").symlink_to("nowhere")
    for _ in range(2):
        run(paths)
        links = sorted(folder.glob("test_data_set_*"))
        assert [p.name for p in links] == [f"test_data_set_{n}" for n in range(4)]
        assert all(not p.readlink().is_absolute() and (p / "input_0.pb").is_file() for p in links)


def test_a_wrong_expected_value(paths: Paths) -> None:
    plant_seven(paths, 0)
    change_expected(paths, 3, expected_output(paths, 3) * 2)
    found, message = refused(paths)
    assert found.outcome == "mismatched"
    assert [c.outcome for c in found.cases] == ["mismatched", "verified", "verified", "mismatched"]
    assert message.startswith(f"double-decomposed-plain@{CELL}: 1 of 6 elements differs beyond rtol=1e-06 atol=0; ")
    assert "worst at (1, 2): expected 7.0, got " in message
    told = "The reference evaluator agrees with ONNX Runtime: the nodes that decomposed() in ops/double/lowering.py"
    assert told in message and "the test data are stale" in message
    first, *values = message.split(f"\ndouble-decomposed-large@{CELL}: ")[0].splitlines()
    assert first.endswith(f"Replay: python -m opmatrix verify double --lowering decomposed --cell {CELL} --case plain")
    assert "  Mismatched elements: 1 / 6 (16.7%)" in values and values[-2].startswith("  inputs: X float32 (2, 3)")


def test_a_tolerance_of_0_has_an_infinite_used_share(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    plant_seven(paths, 0)
    exact = {"decomposed": {"float32": Tolerance(rtol=0.0, atol=0.0)}}
    operator = replace(OPERATOR, spec=replace(OPERATOR.spec, tolerances=exact))
    for case in (None, "plain"):
        with pytest.raises(VerifyError, match="beyond rtol=0 atol=0"):
            verify.run(paths, operator, lowering="decomposed", cell=CELL, case=case)
    found = verdict.read(paths.verdict("double", "decomposed", CELL)).cases[0]
    assert found.error and found.tolerance_used == math.inf
    assert " ULP, >999% of the limit\n" in capsys.readouterr().out


def test_only_the_first_mismatches_are_shown_completely(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(paths, "decomposed", model("decomposed", factor=3.0))
    cases = [Case(name=f"c{n}", inputs={"x": Random(shape=(2, n))}) for n in range(1, 15)]
    operator = replace(OPERATOR, models=(replace(DYNAMIC, cases=tuple(cases)),))
    write_data.run(paths, operator)
    with pytest.raises(VerifyError) as caught:
        verify.run(paths, operator, lowering="decomposed", cell=CELL)
    first, *_, last = lines = [line for line in str(caught.value).splitlines() if not line.startswith("  ")]
    assert len(lines) == 4 and first.startswith(f"double-decomposed-c1@{CELL}: ")
    assert last.startswith(f"double-decomposed@{CELL}: 11 more cases are wrong: c4, c5, c6, c7, c8, ")
    path = paths.verdict("double", "decomposed", CELL)
    assert last.endswith(f"c14. In full: {path.relative_to(paths.root)}, or each by --case NAME")
    assert all("elements differ" in c.detail for c in verdict.read(path).cases)


def test_a_wrong_expected_dtype_or_shape_is_not_tolerated(paths: Paths) -> None:
    change_expected(paths, 0, expected_output(paths, 0).astype("float64"))
    change_expected(paths, 1, expected_output(paths, 1).ravel())
    found, message = refused(paths)
    assert "dtype is float32, expected float64" in message and "shape is (2, 3), expected (6,)" in message
    assert (found.cases[0].error, found.cases[0].tolerance_used) == (math.inf, math.inf)


def test_nan_that_became_a_number(paths: Paths) -> None:
    proto = model("decomposed")
    for node in proto.graph.node:
        node.output[:] = ["Z" if o == "Y" else o for o in node.output]
    proto.graph.node.append(helper.make_node("IsNaN", ["Z"], ["n"]))
    zero = helper.make_tensor("zero", 1, [], [0.0])
    proto.graph.node.append(helper.make_node("Constant", [], ["zero"], value=zero))
    proto.graph.node.append(helper.make_node("Where", ["n", "zero", "Z"], ["Y"]))
    write_model(paths, "decomposed", proto)
    found, message = refused(paths)
    assert [c.outcome for c in found.cases] == ["verified", "mismatched", "verified", "verified"]
    assert "worst at (0, 0): expected nan, got 0.0" in message
    assert found.cases[1].error == math.inf


ATTRIBUTES = "or the model does not hold the attributes of the case (python -m opmatrix export)"


def another_name() -> ModelProto:
    proto = model("decomposed")
    proto.graph.input[0].name = proto.graph.node[1].input[0] = "other"
    return proto


def another_domain() -> ModelProto:
    proto = model("custom")
    del proto.opset_import[1]
    proto.graph.node[0].domain = "new.domain"  # ONNX Runtime has another message where a session has loaded the domain
    return proto


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (model("decomposed", factor=3.0), ATTRIBUTES),
        (
            model("custom"),
            "the model has a node test.domain::Double, and no loaded library registers it. Compare domain",
        ),
        (another_domain(), "a node of the domain 'new.domain', but no opset import of it"),
        (another_name(), "the model's inputs are ['other'], those of the test data ['X']"),
    ],
    ids=["attribute", "node that no library registers", "domain that it does not import", "name"],
)
def test_a_fault_in_a_model_is_named(paths: Paths, made: ModelProto, message: str) -> None:
    write_model(paths, "decomposed", made)
    assert message in refused(paths)[1]


def test_cases_with_one_fault_are_one_line(paths: Paths) -> None:
    write_model(paths, "decomposed", model("decomposed", ir_version=99))
    found, message = refused(paths)
    assert found.outcome == "failed"
    assert message.count("\n") == 0
    assert "the model has IR version 99, and ONNX Runtime" in message
    assert "reads" in message and "older opset" in message
    assert "Also special, empty, large." in message


def test_an_opset_that_onnx_runtime_does_not_know(paths: Paths) -> None:
    write_model(paths, "decomposed", model("decomposed", opset=99))
    assert "the model imports opset 99 of ai.onnx, and ONNX Runtime" in refused(paths)[1]


def test_a_missing_and_a_damaged_model(paths: Paths) -> None:
    path = paths.model("double", "decomposed", CELL, "dynamic")
    path.write_bytes(b"\xff")
    assert "not a readable model. Run: python -m opmatrix export double" in refused(paths)[1]
    path.unlink()
    assert "not a readable model" in refused(paths)[1]


def test_missing_data(paths: Paths) -> None:
    (paths.data("double", "dynamic", 2) / "output_0.pb").unlink()
    found, message = refused(paths)
    assert [c.outcome for c in found.cases] == ["verified", "verified", "failed", "verified"]
    assert "output_0.pb is missing. Run: python -m opmatrix data" in message


def test_a_size_of_the_first_case_in_the_model(paths: Paths) -> None:
    proto = model("decomposed")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    write_model(paths, "decomposed", proto)
    found, message = refused(paths)
    assert [c.outcome for c in found.cases] == ["verified", "verified", "failed", "failed"]
    assert "the model takes 2 as size 0 of X, and was given 0: a dynamic size was baked in. Name the axis in" in message


def test_another_onnx_runtime_than_the_cell_has_or_torch_in_the_process_is_a_failure(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = replace(CELL, ort="1.16")
    with pytest.raises(VerifyError, match=r"the cell asks for ONNX Runtime 1\.16, and .* is installed"):
        verify.run(paths, OPERATOR, lowering="decomposed", cell=cell)
    assert verdict.read(paths.verdict("double", "decomposed", cell)).outcome == "failed"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", ModuleType("torch"))
        found, message = refused(paths)
    assert found.outcome == "failed"
    assert "torch was imported in the process that verifies" in message


def test_a_replay_prints_and_writes_nothing(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"double has no case 'larg'; it has plain, special.*did you mean 'large'"):
        run(paths, case="larg")
    run(paths, case="large")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith("dynamic/model.onnx")
    run_of_six = "optimised: 4000 elements agree within rtol=1e-06 atol=0; error 0, 0 ULP, 0% of the limit"
    assert " ".join(shown[2].split()) == run_of_six
    assert shown[-1] == "verified"
    assert not paths.verdict("double", "decomposed", CELL).exists()


def test_every_model_of_the_operator_runs(paths: Paths) -> None:
    other = replace(OPERATOR, models=(DYNAMIC, replace(DYNAMIC, name="other")))
    with pytest.raises(VerifyError, match=r"other/model.onnx is not a readable model"):
        verify.run(paths, other, lowering="decomposed", cell=CELL)
    found = verdict.read(paths.verdict("double", "decomposed", CELL))
    assert [c.outcome for c in found.cases] == ["verified"] * 4 + ["failed"] * 4


def test_a_reference_without_the_function_fails_the_cell(paths: Paths) -> None:
    paths.reference("double").write_text("def nothing(): ...")
    found, message = refused(paths)
    assert (found.outcome, found.cases) == ("failed", ())
    assert message == f"double-decomposed@{CELL}: ops/double/reference.py: no function named double(); " \
        "the operator's name is expected"  # fmt: skip
