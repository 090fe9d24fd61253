"""Operators whose attributes are lists of strings pass all gates. tests/faults/listed.toml has the faults.

tests/projects/listed: label_ids exists in ONNX alone and has a default; tag_count is in torch, and one of its lists
may be None.
"""

from __future__ import annotations

import json
import re

import onnx
import pytest
from onnx import helper

from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from tests.support.building import classic_kernel
from tests.support.forked import forked
from tests.support.projects import ROOT, Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("listed", tmp_path_factory.mktemp("listed"), "opsets=18")


def test_every_gate_passes(project: Project) -> None:
    report = json.loads((project.paths.report / "report.json").read_text())
    assert {(cell["op"], cell["exporter"]): cell["outcome"] for cell in report["cells"]} == {
        ("label_ids", "node"): "verified",
        ("tag_count", "dynamo"): "verified",
    }
    searched = {check["op"]: check for check in report["checks"] if check["check"] in ("draw-inputs", "search")}
    assert {op: (c["outcome"], c["weak"]) for op, c in searched.items()} == {
        "label_ids": ("verified", []),
        "tag_count": ("verified", []),
    }


def planted(project: Project, operator: str, model: str, **changed: object) -> onnx.ModelProto:
    """Return a model whose node has other attributes; None removes one."""
    cell = "torch2.13-dynamo-opset18" if operator == "tag_count" else "node-opset18"
    found = onnx.load(project.paths.build / f"export/{operator}/custom/{cell}/{model}/model.onnx")
    node = found.graph.node[0]
    kept = [a for a in node.attribute if a.name not in changed]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(n, v) for n, v in changed.items() if v is not None)])
    return found


def test_the_node_has_attributes_of_the_type_strings(project: Project) -> None:
    kept = {
        (operator, model): {a.name: [*a.strings] for a in planted(project, operator, model).graph.node[0].attribute
                            if a.type == onnx.AttributeProto.STRINGS}
        for operator, models in (("label_ids", ("four", "none")), ("tag_count", ("nul", "none")))
        for model in models
    }  # fmt: skip
    assert kept == {
        ("label_ids", "four"): {"classes_strings": [b"b", b"", b"a\0b", "ä".encode()], "counted": [b"b", "ä".encode()]},
        ("label_ids", "none"): {"classes_strings": [], "counted": []},
        ("tag_count", "nul"): {"tags": [b"a\0b", b"", b"c"], "more": [b"d\0"]},
        ("tag_count", "none"): {"tags": [b""]},
    }


# The operator, what to change in a node, and the messages of ONNX Runtime and of doit check.
REFUSED: dict[str, tuple[str, dict[str, object], str, str]] = {
    "missing": (
        "label_ids", {"classes_strings": None},
        "label_ids: attribute classes_strings is missing; it must be of type strings",
        "attribute 'classes_strings' is missing and has no default",
    ),
    "a string": (
        "label_ids", {"counted": "a"}, "label_ids: attribute counted must be of type strings, got string",
        "attribute 'counted': it is STRING, declared: STRINGS",
    ),
    "ints": (
        "tag_count", {"tags": [1, 2]}, "tag_count: attribute tags must be of type strings, got ints",
        "attribute 'tags': it is INTS, declared: STRINGS",
    ),
    "strings for a float": (
        "tag_count", {"factor": ["1.0"]}, "tag_count: attribute factor must be of type float, got strings",
        "attribute 'factor': it is STRINGS, declared: FLOAT",
    ),
    "another name": (
        "label_ids", {"labels": ["a"]}, "label_ids: unknown attribute labels; in ONNX its name is classes_strings",
        "it has no attribute 'labels'; declared: classes_strings, counted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_wrong_attribute_is_refused(fault: str, project: Project) -> None:
    operator, changed, message, finding = REFUSED[fault]
    model = planted(project, operator, "long", **changed)
    onnx.save(model, path := project.root / "planted.onnx")
    assert finding in project.doit("check", str(path)).stdout

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        with pytest.raises(RefusedError, match=re.escape(message)):
            OrtSessions(project.paths.ort_library(operator)).sessions(model.SerializeToString())

    assert forked(in_onnx_runtime, project.root / "output") == ""


def test_a_default_is_taken_where_a_node_has_none(project: Project) -> None:
    model = planted(project, "label_ids", "four", counted=None).SerializeToString()

    def in_onnx_runtime() -> None:
        import numpy as np

        from opmatrix.ort_checks.sessions import OrtSessions

        texts = np.array(["b", "ä", "a", "b\0"], object)
        for session in OrtSessions(project.paths.ort_library("label_ids")).sessions(model).values():
            ids, sizes = session.run(None, {"texts": texts})
            assert (ids.tolist(), sizes.tolist()) == ([0, 3, -1, -1], [2, 3, 0, 0])

    assert forked(in_onnx_runtime, project.root / "output") == ""


def test_an_older_onnx_runtime_is_not_asked() -> None:
    operator, cell = (
        load_operator(Paths(ROOT / "tests/projects/listed"), "label_ids"),
        Cell.parse("node-opset18-ort1.24"),
    )
    assert operator.why_unreadable(cell) == "ONNX Runtime 1.24 gives no kernel a list of strings; 1.25 is the first"
    assert operator.why_unreadable(Cell.parse("node-opset18-ort1.31")) is None


def test_the_classic_binding_computes_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the C++ headers of the installed torch, as for a torch before 2.10."""
    classic_kernel(project, "tag_count", monkeypatch)


def test_the_legacy_exporter_still_traces_no_list_of_strings(project: Project) -> None:
    """If this fails, torch has learned it: then cells of the legacy exporter can be verified."""
    paths, operator = project.paths, load_operator(project.paths, "tag_count")
    reason = operator.unavailable_reason(Cell.parse("torch2.13-legacy-opset18-ort1.31"))
    assert "torch's legacy exporter traces no list of strings" in str(reason)

    def export() -> None:
        import io
        import warnings

        import torch

        from opmatrix.torch_ops import load

        op = load.load(paths, operator).overload

        class Tagged(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return op(x, ["a"])  # type: ignore[no-any-return]  # torch has no type for it

        with warnings.catch_warnings(), pytest.raises(RuntimeError, match="unsupported input list type: str"):
            warnings.simplefilter("ignore")  # that the exporter is deprecated
            torch.onnx.export(Tagged(), (torch.ones(2),), io.BytesIO(), opset_version=18, dynamo=False)

    forked(export, project.root / "output")


@pytest.mark.slow
@pytest.mark.deep
def test_the_sanitizers_find_nothing(project: Project) -> None:
    """Also ThreadSanitizer's program, which has lists of strings."""
    project.passes("-n", "2", "opsets=18", "sanitize")
