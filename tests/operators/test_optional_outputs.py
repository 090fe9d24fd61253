"""Outputs that a node may leave out: verified with and without them. tests/faults/optional.toml plants faults."""

from __future__ import annotations

import onnx
import pytest

from tests.support.projects import Project

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
