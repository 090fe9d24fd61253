"""An operator whose attributes may be absent passes all gates.

tests/projects/absent: one attribute of each kind; 0, False and an empty list differ from none.
"""

from __future__ import annotations

import re

import onnx
import pytest
from onnx import helper

from opmatrix.declaration.load import load_operator
from tests.support.building import classic_kernel
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("absent", tmp_path_factory.mktemp("optional"), "opsets=18")


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"maybe-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize(
    ("model", "attributes"),
    [
        ("absent", {"factor"}),
        ("absent_later", {"factor", "schema_version"}),
        ("times", {"factor", "for"}),
        ("full", {"factor", "schema_version", "shift", "for", "negate", "mode", "weights", "steps", "more"}),
    ],
)
def test_a_node_has_the_attributes_that_are_given(
    exporter: str, model: str, attributes: set[str], project: Project
) -> None:
    path = project.paths.build / f"export/maybe/custom/torch2.13-{exporter}-opset18/{model}/model.onnx"
    assert {a.name for a in onnx.load(path).graph.node[0].attribute} == attributes


def test_the_schema_has_none_as_the_default(project: Project) -> None:
    text = (project.paths.build / "generated/maybe/fake.py").read_text()
    for part in ("float? bias=None", "int? times=None", "bool? negate=None", "str? mode=None", "float[]? weights=None"):
        assert part in text


def test_values_are_checked_where_they_are_given(project: Project) -> None:
    paths, operator = project.paths, load_operator(project.paths, "maybe")
    path = paths.build / "export/maybe/custom/torch2.13-legacy-opset18/full/model.onnx"
    refused = {
        "for": (9, "maybe: for must be at least 0 and at most 5, got 9"),
        "mode": ("triple", "maybe: mode must be one of none, double, halve, got triple"),
        "steps": ([1, 4], "maybe: steps must each be at least -3 and at most 3, got 4"),
        "negate": (2, "maybe: attribute negate must be 0 or 1, got 2"),
        "weights": ([1], "maybe: attribute weights must be of type floats, got ints"),
        "times": (1, "maybe: unknown attribute times; in ONNX its name is for"),
    }

    def in_torch() -> None:
        import torch

        from opmatrix.torch_ops import load

        op = load.load(paths, operator).overload
        assert op(torch.ones(3), 1.0, times=0).tolist() == [2.0] * 3
        with pytest.raises(RuntimeError, match="maybe: times must be at least 0 and at most 5, got 9"):
            op(torch.ones(3), 1.0, times=9)

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        sessions = OrtSessions(paths.ort_library("maybe"))
        for name, (value, message) in refused.items():
            model = onnx.load(path)
            node = model.graph.node[0]
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])
            with pytest.raises(RefusedError, match=re.escape(message)):
                sessions.sessions(model.SerializeToString())

    assert forked(in_torch, project.root / "output") == ""
    assert forked(in_onnx_runtime, project.root / "output") == ""


def test_the_classic_binding_computes_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the C++ headers of the installed torch, as for a torch before 2.9."""
    classic_kernel(project, "maybe", monkeypatch)
