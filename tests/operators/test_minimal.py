"""The seeds' group norm with the seeds' features only: float32, one model, one case. benchmarks/lines.py counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import ROOT, Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

MINIMAL = ROOT / "tests/projects/minimal"
SEEDS = 306  # lines of the seeds' operator: seven files of onnx/tutorials, PyTorchCustomOperator


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.of("minimal", tmp_path_factory.mktemp("minimal"))


def test_every_cell_is_verified(project: Project) -> None:
    project.passes("opsets=9,18")
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = ("legacy-opset9", "legacy-opset18", "dynamo-opset18")
    assert found == {f"group_norm-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}
    assert {path.name.partition("@")[0] for path in project.paths.build.glob("register/group_norm/*.json")} == {
        "schema", "nodes", "kernel", "search",
    }  # fmt: skip


def test_it_has_at_most_a_third_of_the_seeds_lines() -> None:
    written = [path for path in MINIMAL.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.name for path in written} == {"spec.py", "cases.py", "reference.py", "kernel.h"}
    assert sum(len(path.read_text().splitlines()) for path in written) <= SEEDS / 3


def test_it_has_the_seeds_names_and_case(project: Project) -> None:
    import onnx

    (model,) = Path(project.paths.build).glob("export/group_norm/custom/torch2.13-legacy-opset9/seed/model.onnx")
    graph = onnx.load(model).graph
    assert [(node.domain, node.op_type) for node in graph.node if node.domain] == [("mydomain", "testgroupnorm")]
    assert [value.name for value in (*graph.input, *graph.output)] == ["X", "num_groups", "scale", "bias", "Y"]
    assert [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == [3, 2, 1, 2]
