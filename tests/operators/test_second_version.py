"""An operator with two versions: models of both are exported, verified and kept; each breach is reported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper

from opmatrix.data import dataset
from opmatrix.project.paths import Paths
from tests.support.evolved import SINCE, evolve
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

CELL = "torch2.13-legacy-opset18-ort1.31"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the first version only, as users have installed it."""
    made = Project.copy(tmp_path_factory.mktemp("first"))
    made.passes("compile:group_norm")
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with both versions, which are verified and published."""
    made = Project.copy(tmp_path_factory.mktemp("both"))
    evolve(made)
    made.passes("opsets=18")
    done = made.stage("publish", "group_norm")
    assert done.returncode == 0, done.stderr
    assert "ops/group_norm/published/1/schema.json: published, and as declared" in done.stdout
    assert f"wrote ops/group_norm/published/{SINCE}/schema.json" in done.stdout
    made.passes("opsets=18")
    return made


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_models_of_both_versions_are_exported(both: Project, exporter: str) -> None:
    found = {}
    for path in (both.paths.build / f"export/group_norm/custom/torch2.13-{exporter}-opset18").glob("*/model.onnx"):
        model = onnx.load_model(path)
        version = {o.domain: o.version for o in model.opset_import}["mydomain"]
        (node,) = model.graph.node
        found[version] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert {v: sorted(attributes) for v, attributes in found.items()} == {
        1: ["epsilon"],
        2: ["epsilon"],
        3: ["epsilon", "lift", "schema_version"],
    }
    assert found[3]["lift"] == 0.25
    assert found[3]["schema_version"] == 3


def test_models_of_published_versions_run_in_the_first_cell(both: Project) -> None:
    records = both.records()
    assert {r["outcome"] for r in records.values()} == {"verified"}
    kept = {name: [c["case"] for c in r["cases"] if c["case"].startswith("published_")] for name, r in records.items()}
    assert {name: cases for name, cases in kept.items() if cases} == {
        f"group_norm-custom@{CELL}": ["published_1", f"published_{SINCE}"]
    }


def run(library: Paths, of: Paths, version: int) -> float:
    """Return the error of a published model's result in ONNX Runtime with a library."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library.ort_library("group_norm")))
    path = str(of.published_model("group_norm", version))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    data = dataset.read(of.published_data("group_norm", version))
    (found,) = session.run(None, dict(data.inputs))
    (expected,) = data.outputs.values()
    return float(abs(found - expected).max())


def test_the_new_library_runs_the_old_model(first: Project, both: Project) -> None:
    assert first.paths.published_model("group_norm", 1).read_bytes() == (
        both.paths.published_model("group_norm", 1).read_bytes()
    )
    assert run(both.paths, first.paths, 1) < 1e-6
    assert run(both.paths, both.paths, SINCE) < 1e-6


def test_the_old_library_refuses_the_new_model(first: Project, both: Project) -> None:
    assert run(first.paths, both.paths, 1) < 1e-6
    says = "group_norm: the node is of version 3, and this library has none after 1; take a newer library"
    with pytest.raises(Exception, match=says):
        run(first.paths, both.paths, SINCE)


PROGRAM = """
import importlib.util, sys, torch
library, fake, what, folder = sys.argv[1:]
torch.ops.load_library(library)
found = importlib.util.spec_from_file_location("fake", fake)
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
module.register_fake()
class Old(torch.nn.Module):
    def forward(self, x, groups, scale, bias):
        return torch.ops.mynamespace.custom_group_norm(x, groups, scale, bias, 1e-3)
torch.manual_seed(0)
inputs = torch.randn(2, 4, 3, 3), torch.tensor([2.0]), torch.ones(4), torch.zeros(4)
if what == "save":
    torch.export.save(torch.export.export(Old(), inputs), f"{folder}/old.pt2")
    torch.jit.trace(Old(), inputs).save(f"{folder}/old.pt")
    torch.save(Old()(*inputs), f"{folder}/expected.pt")
else:
    expected = torch.load(f"{folder}/expected.pt")
    for program in (torch.export.load(f"{folder}/old.pt2").module(), torch.jit.load(f"{folder}/old.pt")):
        assert torch.equal(program(*inputs), expected)
    now = torch.ops.mynamespace.custom_group_norm.default._schema
    old = torch._C.parse_schema(open(f"{folder}/schema").read())
    assert now.is_backward_compatible_with(old) and not old.is_backward_compatible_with(now)
    print("ran 2 programs")
"""


def test_old_torch_programs_run_with_the_new_library(first: Project, both: Project, tmp_path: Path) -> None:
    schema = json.loads((first.paths.published("group_norm", 1) / "schema.json").read_text())["torch"]
    (tmp_path / "schema").write_text(schema)
    for project, what in ((first, "save"), (both, "load")):
        paths = project.paths
        files = [paths.torch_library("group_norm"), paths.generated("group_norm") / "fake.py"]
        command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, files), what, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 0, done.stderr
    assert "ran 2 programs" in done.stdout


def with_attribute(model: Path, version: int) -> ModelProto:
    """Return a model with an attribute of the second version, and another import."""
    found = onnx.load_model(model)
    found.graph.node[0].attribute.append(helper.make_attribute("lift", 0.5))
    for imported in found.opset_import:
        imported.version = version if imported.domain == "mydomain" else imported.version
    return found


def test_the_checker_has_a_schema_for_each_version(both: Project) -> None:
    found = importlib.util.spec_from_file_location("schema", both.paths.generated("group_norm") / "schema.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    made = [module.schema(version) for version in (1, SINCE)]
    model = both.paths.published_model("group_norm", 1)
    for schema in made:
        onnx.defs.register_schema(schema)
    try:
        onnx.checker.check_model(with_attribute(model, SINCE), full_check=True)
        with pytest.raises(onnx.checker.ValidationError, match="Unrecognized attribute: lift for operator mygroupnorm"):
            onnx.checker.check_model(with_attribute(model, 2), full_check=True)
    finally:
        for schema in made:
            onnx.defs.deregister_schema(schema.name, schema.since_version, schema.domain)


@pytest.fixture
def edited(both: Project) -> Iterator[Project]:
    """The project, whose files are restored afterwards."""
    kept = {p: p.read_bytes() for room in ("ops", "native") for p in (both.root / room).rglob("*") if p.is_file()}
    yield both
    for path, content in kept.items():
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def test_a_kernel_with_another_default_than_before(edited: Project) -> None:
    """Reference and kernel are wrong alike, so that no current case differs; the published data set does."""
    edited.replace(
        "native/group_norm/kernel.h", "static_cast<double>(lift),", "(lift == 0 ? 0.5 : static_cast<double>(lift)),"
    )
    edited.replace("ops/group_norm/reference.py", "np.longdouble(lift)", "np.longdouble(lift or 0.5)")
    edited.replace("ops/group_norm/lowering.py", "g.constant(lift, ", "g.constant(lift or 0.5, ")
    done = edited.doit("opsets=18", f"verify:group_norm-custom@{CELL}")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "group_norm-custom-published_1@" in said
    assert "a model of version 1 runs no more: " in said
    assert f"--cell {CELL} --case published_1" in said
    assert "published_3" not in said


def test_a_missing_published_model(edited: Project) -> None:
    edited.paths.published_model("group_norm", SINCE).unlink()
    done = edited.stage("verify", "group_norm", "--cell", CELL, "--case", f"published_{SINCE}")
    assert done.returncode == 10
    lost = f" ops/group_norm/published/{SINCE}/model.onnx or its data are missing. Take them from the history of the p"
    assert lost in done.stderr


def test_a_placeholder_is_not_published(tmp_path: Path) -> None:
    made = Project.copy(tmp_path, operators=("custom_op_one",))
    made.replace("ops/custom_op_one/reference.py", "The sum in NumPy.", "TODO")
    done = made.stage("publish", "custom_op_one")
    assert done.returncode == 2
    assert "cannot publish custom_op_one, because a published version never changes, and TODOs are left" in done.stderr
    assert "  ops/custom_op_one/reference.py: 1\n" in done.stderr
    assert not made.paths.published("custom_op_one").exists()


def test_a_version_without_a_model_is_not_published(tmp_path: Path) -> None:
    made = Project.copy(tmp_path)
    evolve(made)
    made.replace("ops/group_norm/cases.py", "domain_version=3", "domain_version=2")
    made.replace("ops/group_norm/cases.py", ', "lift": 0.25', "")
    done = made.stage("publish", "group_norm")
    assert done.returncode == 2
    says = "group_norm has no case to keep for version 3: add a model with domain_version=3 to ops/group_norm/cases.py"
    assert says in done.stderr
    assert not made.paths.published("group_norm", 3).exists()


def test_published_files_are_not_overwritten(tmp_path: Path) -> None:
    made = Project.copy(tmp_path)
    made.replace("ops/group_norm/spec.py", "versions=(1, 2)", "versions=(1, 2, 3)")
    schema = made.paths.published("group_norm", 1) / "schema.json"
    kept = made.paths.published_model("group_norm", 1).read_bytes()
    done = made.stage("publish", "group_norm")
    assert done.returncode == 0, done.stderr
    assert '"domain_versions": [1, 2, 3]' in schema.read_text()
    assert '"T": ["float32", "float64"]' in schema.read_text() and "later_types" in schema.read_text()
    assert made.paths.published_model("group_norm", 1).read_bytes() == kept
    made.replace("ops/group_norm/spec.py", "default=1e-5", "default=1e-4")
    before = schema.read_text()
    done = made.stage("publish", "group_norm")
    assert done.returncode == 3
    assert "attributes['epsilon'].default: version 1 is published with 1e-05, found 0.0001" in done.stderr
    assert schema.read_text() == before


@pytest.mark.parametrize(("name", "version"), [("custom_op_one", 1), ("nms", 1), ("gelu", 1)])
def test_every_kind_of_operator_can_be_published(name: str, version: int, tmp_path: Path) -> None:
    made = Project.copy(tmp_path, operators=(name,))
    done = made.stage("publish", name)
    assert done.returncode == 0, done.stderr
    model = onnx.load_model(made.paths.published_model(name, version))
    onnx.checker.check_model(model)
    assert sum(p.stat().st_size for p in made.paths.published(name, version).rglob("*") if p.is_file()) < 20_000
