"""Outputs that a node may leave out: verified with and without them, and each planted fault of the kernel found."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from opmatrix.basics.errors import SpecError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT, Project, edited

OPTIONAL = ROOT / "tests/projects/optional"
pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("optional", tmp_path_factory.mktemp("optional"), "opsets=18")


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    assert len(found) == 3 and set(found.values()) == {"verified"}


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_the_node_leaves_out_what_the_model_does_not_have(project: Project, exporter: str) -> None:
    cell = project.paths.build / f"export/positive/custom/torch2.13-{exporter}-opset18"

    def outputs(name: str) -> list[str]:
        model = onnx.load(cell / name / "model.onnx")
        assert [o.name for o in model.graph.output] == [o for o in model.graph.node[0].output if o]
        return list(model.graph.node[0].output)

    assert outputs("all") == ["y", "places", "mask", "rest"]
    assert outputs("unplaced") == ["y", "", "mask", "rest"]
    assert outputs("without_rest") == ["y", "places", "mask"]
    assert outputs("alone") == ["y"]


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_an_output_that_is_turned_off_is_empty(project: Project, exporter: str) -> None:
    cell = project.paths.build / f"export/positive/custom/torch2.13-{exporter}-opset18"
    mask = {o.name: o for o in onnx.load(cell / "off/model.onnx").graph.output}["mask"]
    assert [d.dim_value for d in mask.type.tensor_type.shape.dim] == [0]


# A fault of the kernel, the step that finds it, and its message.
FAULTS = {
    "makes what is not wanted": (
        "if (!places.wanted()) return;", "",
        "verify", "positive: the kernel made places, which is not wanted; ask wanted() first",
    ),
    "does not compute it": (
        "if (rest) rest->data[i] = kept ? T(0) : x.data[i];", "if (rest) rest->data[i] = T(0);",
        "register", "positive-all in torch: rest",
    ),
    "computes another where one is absent": (
        "y.data[i] = kept ? x.data[i] : T(0);", "y.data[i] = kept && rest ? x.data[i] : T(0);",
        "verify", "unplaced_nan, without_rest, without_rest_nan, alone",
    ),
    "computes it only beside another one": (
        "if (mask) mask->data[i] = kept;", "if (mask && (rest || places.wanted())) mask->data[i] = kept;",
        "verify", "wrong where the node leaves out all optional outputs but 'mask': output 'mask': ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_kernel_is_found(project: Project, fault: str) -> None:
    old, new, step, message = FAULTS[fault]
    with edited(project.root / "native/positive/kernel.h", old, new):
        done = project.doit("opsets=18", "positive")
    said = done.stdout + done.stderr
    assert done.returncode != 0 and message in said and f"{step}:positive" in said, said


# A mistake in spec.py or cases.py, and its message.
MISTAKES = {
    "an attribute that is no bool": (
        "spec.py", 'optional="return_mask"', 'optional="return_masks"',
        "outputs[2].optional: found 'return_masks', allowed: return_mask; did you mean 'return_mask'?",
    ),
    "no required output": (
        "spec.py", 'Output(name="y", type="T", shape=SameAs(input="x")',
        'Output(name="y", type="T", optional=True, shape=SameAs(input="x")',
        "outputs: found none that is required, allowed: at least one",
    ),
    "a required output left out": (
        "cases.py", '"rest", masked=True', '"y", masked=True',
        "absent: found 'y', allowed: places, mask, rest",
    ),
    "never left out": (
        "cases.py", 'absent=absent', 'absent=()',
        "optional output 'places' is in every model, so that the kernel never runs without it; "
        "add a model with absent=('places',)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_declaration_is_named(project: Project, mistake: str, tmp_path: Path) -> None:
    file, old, new, message = MISTAKES[mistake]
    shutil.copytree(OPTIONAL, tmp_path, dirs_exist_ok=True)
    with edited(tmp_path / "ops/positive" / file, old, new), pytest.raises(SpecError) as raised:
        load_operator(Paths(tmp_path), "positive")
    assert message in str(raised.value)
