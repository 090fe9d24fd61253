"""Exports of group_norm: the declared nodes in every cell, equal bytes everywhere; exports with faults are refused.

Each export runs in a child process, as in the pipeline: registrations must not leak from one to the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.files import write_text
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.export import compare_exports as agreement
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from tests.support.forked import forked
from tests.support.projects import ROOT, Project

pytestmark = pytest.mark.torch

LEGACY = Cell(torch="2.13", exporter="legacy", opset=9, ort="1.31")
DYNAMO = Cell(torch="2.13", exporter="dynamo", opset=20, ort="1.31")
CELLS = (LEGACY, DYNAMO)


def project(folder: Path) -> Project:
    """Copy the project and write the Python part of its generated code."""
    made = Project.copy(folder)
    for name, text in python_modules.render(load_operator(made.paths, "group_norm").spec).items():
        write_text(made.paths.generated("group_norm") / name, text)
    return made


def export(made: Project, *cells: Cell, output: Path) -> str:
    """Export in a child; return the message of its error, or ""."""
    from opmatrix.export import write_models as export

    operator = load_operator(made.paths, "group_norm")

    def work() -> None:
        for cell in cells:
            export.run(made.paths, operator, lowering="custom", cell=cell)

    return forked(work, output)


def agree(made: Project, cells: Sequence[Cell], output: Path) -> str:
    operator = load_operator(made.paths, "group_norm")
    return forked(lambda: agreement.run(made.paths, operator, lowering="custom", cells=cells), output)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Import and build in this process what all children need."""
    from opmatrix.export import exporters

    exporters.warm_up()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Export in both cells. The printed output is in `exported.txt`."""
    made = project(tmp_path_factory.mktemp("first"))
    assert export(made, *CELLS, output=made.root / "exported.txt") == ""
    return made


def files(paths: Paths) -> dict[str, bytes]:
    root = paths.manifest("group_norm", "custom", LEGACY).parent.parent
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_nothing_is_printed(first: Project) -> None:
    assert (first.root / "exported.txt").read_text() == ""


def test_bytes_are_equal_in_another_process_and_checkout(first: Project, tmp_path: Path) -> None:
    second = project(tmp_path / "a longer path" / "second")
    for cell in CELLS:  # by hand: it shares nothing with the process of the first export
        command = [sys.executable, "-m", "opmatrix", "export", "group_norm", "--cell", str(cell)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "pipeline"), "PYTHONHASHSEED": "7"}
        subprocess.run(command, cwd=second.root, env=environment, check=True)
    assert files(first.paths) == files(second.paths)


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_no_path_of_this_machine_is_in_a_model(first: Project, cell: Cell) -> None:
    for name, content in files(first.paths).items():
        assert str(first.root).encode() not in content, name
        assert b".py" not in content, name


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_the_manifest_describes_the_seed_model(first: Project, cell: Cell) -> None:
    manifest = json.loads(first.paths.manifest("group_norm", "custom", cell).read_text())
    seed: dict[str, Any] = manifest["models"]["seed"]
    assert seed["opset_imports"] == {"": cell.opset, "mydomain": 2}
    assert [(v["name"], v["shape"]) for v in (*seed["inputs"], *seed["outputs"])] == [
        ("X", [3, 2, 1, 2]), ("num_groups", [1]), ("scale", [2]), ("bias", [2]), ("Y", [3, 2, 1, 2]),
    ]  # fmt: skip
    (node,) = seed["nodes"]
    assert (node["domain"], node["op_type"]) == ("mydomain", "mygroupnorm")
    assert node["attributes"] == {"epsilon": {"type": "FLOAT", "value": "0.0"}}


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_dynamic_axes_keep_their_names(first: Project, cell: Cell) -> None:
    manifest = json.loads(first.paths.manifest("group_norm", "custom", cell).read_text())
    dynamic = manifest["models"]["dynamic_float64"]
    assert [v["shape"] for v in (*dynamic["inputs"], *dynamic["outputs"])] == [
        ["N", "C", "H", "W"], [1], ["C"], ["C"], ["N", "C", "H", "W"],
    ]  # fmt: skip
    assert {v["dtype"] for v in dynamic["outputs"]} == {"float64"}


def test_both_exporters_give_the_same_custom_nodes(first: Project, tmp_path: Path) -> None:
    assert agree(first, CELLS, tmp_path / "output") == ""


@pytest.fixture
def faulty(tmp_path: Path) -> Project:
    """A project that a test may edit, with few models."""
    made = project(tmp_path / "faulty")
    cases = made.paths.cases("group_norm")
    cases.write_text(cases.read_text() + '\nMODELS = (SEED, dynamic("float32"), flat("float32"))\n')
    return made


@pytest.mark.parametrize(
    ("cell", "file", "old", "new", "expected"),
    [
        (LEGACY, "schema.py", '"epsilon", 1e-5', '"epsilon", 1e-6', "the ONNX schema has the default 9.99"),
        (DYNAMO, "schema.py", '"epsilon", 1e-5', '"epsilon", 1e-6', "the ONNX schema has the default 9.99"),
        (DYNAMO, "fake.py", "x.shape)", "x.shape) if x.shape[0] * 2 != 4 else x", "it raised UserError: "),
    ],
)  # fmt: skip
def test_a_planted_fault_is_refused(
    cell: Cell, file: str, old: str, new: str, expected: str, faulty: Project, tmp_path: Path
) -> None:
    path = faulty.paths.generated("group_norm") / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    message = export(faulty, cell, output=tmp_path / "output")
    assert expected in message
    assert message.startswith("group_norm-custom-")


def test_the_legacy_exporter_infers_no_shape_from_the_operator(faulty: Project, tmp_path: Path) -> None:
    path = faulty.paths.generated("group_norm") / "fake.py"
    path.write_text(path.read_text().replace("x.new_empty(x.shape)", "x.new_empty((7,))"))
    assert export(faulty, LEGACY, output=tmp_path / "output") == ""


def test_exports_that_differ_are_named(faulty: Project, tmp_path: Path) -> None:
    assert export(faulty, LEGACY, output=tmp_path / "output") == ""
    mine = faulty.paths.manifest("group_norm", "custom", LEGACY).read_text()
    write_text(faulty.paths.manifest("group_norm", "custom", DYNAMO), mine.replace('"0.0"', '"1.0"'))
    assert agree(faulty, CELLS, tmp_path / "output").startswith(
        "group_norm-custom-seed: torch2.13-legacy-opset9 has ['mydomain::mygroupnorm@2(epsilon=FLOAT 0.0)'], "
        "torch2.13-dynamo-opset20 has ['mydomain::mygroupnorm@2(epsilon=FLOAT 1.0)']"
    )
    record = verdict.read_check(faulty.paths.agreement("group_norm", "custom", torch="2.13"))
    assert record.outcome == "failed" and record.detail.startswith("group_norm-custom-seed: ")


def test_a_missing_manifest_names_the_command_that_writes_it(faulty: Project, tmp_path: Path) -> None:
    message = agree(faulty, CELLS, tmp_path / "output")
    assert f"python -m opmatrix export group_norm --lowering custom --cell {LEGACY}" in message


def test_missing_generated_code_names_the_command_that_writes_it(tmp_path: Path) -> None:
    message = export(Project.copy(tmp_path / "bare"), LEGACY, output=tmp_path / "output")
    assert "python -m opmatrix codegen group_norm" in message


def test_another_torch_is_refused(faulty: Project, tmp_path: Path) -> None:
    cell = Cell(torch="2.6", exporter="legacy", opset=9, ort="1.31")
    assert "this environment has torch 2.13" in export(faulty, cell, output=tmp_path / "output")


def test_the_cached_registry_equals_torchs() -> None:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from opmatrix.export import dynamo_exporter

    def translations(registry: Any) -> dict[Any, list[Any]]:
        return {
            target: [found.onnx_function for found in all_found] for target, all_found in registry.functions.items()
        }

    dynamo_exporter._all_opsets.cache_clear()  # other tests of this process may have registered operators since
    for opset in (18, 23):
        assert translations(dynamo_exporter.registry(opset)) == translations(ONNXRegistry.from_torchlib(opset))
