"""Operators in other versions of torch and of ONNX Runtime: one command makes one report."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opmatrix.project.cells import ORT, Cell, why_unreadable
from tests.incremental.real import RealProject
from tests.other_versions.conftest import Needs
from tests.other_versions.environments import environment
from tests.support.projects import ROOT, Project

REGISTRIES = """
from torch.onnx._internal.exporter._registration import ONNXRegistry
from opmatrix.export import dynamo_exporter

def translations(registry):
    return {target: [one.onnx_function for one in found] for target, found in registry.functions.items()}

with dynamo_exporter.cached_registry():
    first = ONNXRegistry.from_torchlib()
    first.functions.clear()
    second = ONNXRegistry.from_torchlib()
assert translations(second) == translations(ONNXRegistry.from_torchlib()), "they differ"
print(len(second.functions), second.opset_version, ONNXRegistry.from_torchlib is dynamo_exporter.registry)
"""

pytestmark = [pytest.mark.matrix, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


def test_one_library_serves_every_onnx_runtime(project: Project, needs: Needs) -> None:
    """nms has absent inputs before others: with shape inference, ONNX Runtime 1.18 and 1.21 crash on them."""
    needs(*(f"ort{version}" for version in ORT if version != "1.31"))
    project.passes("ort=all", "opsets=18,21")
    found = project.records()
    assert {cell.rpartition("-ort")[2] for cell in found} == {*ORT}
    libraries = list(project.paths.build.glob("compile/*/*_ort.so"))
    assert len(libraries) == 2, "an operator has one library for all"
    for name, record in found.items():
        declared = why_unreadable(Cell.parse(name.partition("@")[2]))
        assert (record["outcome"], record["detail"]) == (("unsupported", declared) if declared else ("verified", "")), (
            name
        )
    assert {r["outcome"] for r in found.values() if r["ort"] == "1.16"} == {"verified", "unsupported"}


def test_a_cell_declared_unsupported_that_works_is_a_failure(tmp_path: Path) -> None:
    project = RealProject.make(tmp_path)
    path = project.root / "pipeline/opmatrix/project/cells.py"
    path.write_text(path.read_text().replace("Ort(ir=13, opset=26)", "Ort(ir=13, opset=17)"))
    cell = "torch2.13-legacy-opset18-ort1.31"
    done = project.run(f"verify:group_norm-custom@{cell}")
    assert done.returncode == 1
    said = "pipeline/opmatrix/project/cells.py says that ONNX Runtime 1.31 reads opsets up to 17, not 18, but it does. "
    assert said in done.stdout


def test_a_cell_that_works_beyond_the_nearest_older_row_is_verified(tmp_path: Path) -> None:
    """ONNX Runtime 1.31 without a row, and with 1.24 as if it read opset 17 at most."""
    project = RealProject.make(tmp_path)
    path = project.root / "pipeline/opmatrix/project/cells.py"
    text = (
        path.read_text()
        .replace('    "1.31": Ort(ir=13, opset=26),\n', "")
        .replace("Ort(ir=13, opset=25)", "Ort(ir=13, opset=17)")
    )
    path.write_text(text)
    done = project.run("verify:group_norm-custom@torch2.13-legacy-opset18-ort1.31")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not measured: onnxruntime 1.31 is used as 1.24. To measure: opmatrix probe" in done.stdout


def test_an_export_by_hand(project: Project, needs: Needs) -> None:
    """A build of torch 2.15 for CUDA warns that it has no triton, in the process that first imports its counter."""
    needs("torch2.15")
    assert project.doit("codegen:nms", "data:nms").returncode == 0
    arguments = ("export", "nms", "--lowering", "custom", "--cell", "torch2.15-dynamo-opset18-ort1.31")
    done = project.stage(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_exporters_of_several_torches_give_the_same_nodes(project: Project, needs: Needs) -> None:
    needs("torch2.9", "torch2.15")
    done = project.passes("torch=all", "opsets=18")
    assert "export:group_norm-custom-agreement@torch2." in done.stdout
    found = project.records()
    assert {record["torch"] for record in found.values()} >= {"2.9", "2.13", "2.15"}
    assert {record["outcome"] for record in found.values()} == {"verified"}
    proved = {path.stem for path in project.paths.build.glob("register/group_norm/*@*.json")}
    assert {f"{part}@torch2.9" for part in ("schema", "kernel", "nodes", "search", "gradient")} <= proved
    again = project.doit("torch=all", "opsets=18")
    assert "all up to date" in again.stdout
    # The report of another choice of cells still has what this one verified.
    assert project.doit("opsets=18").returncode == 0
    assert project.records().keys() == found.keys()


def test_an_environment_that_cannot_be_made_does_not_stop_the_others(tmp_path: Path) -> None:
    project = Project.copy(tmp_path)
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    done = project.doit("torch=2.9,2.13", "opsets=18", **nothing)
    assert done.returncode == 1
    assert "environment:torch2.9: failed\n" in done.stdout
    assert "environment torch2.9: pip failed." in done.stdout
    found = project.records()
    for name, record in found.items():
        if "torch2.13" in name:
            assert record["outcome"] == "verified", name
        else:
            assert record["outcome"] == "failed" and "not run: environment:torch2.9 failed" in record["detail"], name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch2.13-opset26", "the dynamo exporter of torch 2.13 writes opsets 18 to 25, not 26"),
        ("torch2.14", "there is no torch2.14; allowed: torch"),
        ("ort1.17", "there is no ort1.17; allowed: ort1.16"),
    ],
)
def test_tox_has_the_reason_for_an_unsupported_name(name: str, reason: str) -> None:
    done = subprocess.run([ROOT / "run", "tox", "run", "-e", name], capture_output=True, text=True)
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_tox_lists_the_supported_cells() -> None:
    done = subprocess.run([ROOT / "run", "tox", "list", "--no-desc"], capture_output=True, text=True, check=True)
    listed = done.stdout.split()
    assert {"lint", "torch2.13", "torch2.9-opset25", "torch2.15-opset9", "ort1.16"} <= {*listed}
    assert not [name for name in listed if name.endswith(("opset19", "opset24", "opset26"))]


@pytest.mark.parametrize("torch", ["2.6", "2.9", "2.15"])
def test_the_cached_registry_equals_that_of_this_torch(torch: str, needs: Needs) -> None:
    """A server builds it once, for all exports; the changes of one export do not reach another."""
    needs(f"torch{torch}")
    done = environment(torch).run("-c", REGISTRIES)
    assert done.returncode == 0, done.stderr
    functions, opset, left = done.stdout.split()
    assert int(functions) > 300 and opset == "18" and left == "False"
