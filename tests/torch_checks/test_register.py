"""The compiled torch library is compared with declaration and data, and each kind of fault is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.files import sha256
from opmatrix.declaration.checks import register_parts
from opmatrix.declaration.load import load_operators, operator_names
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.torch_checks.register import parts
from tests.support import forked
from tests.support.projects import ROOT, Project

pytestmark = [pytest.mark.torch, pytest.mark.compile]

FEW = '\nMODELS = (SEED, static("float64"))\n'


def pipeline(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "register":
        return forked.register(project.root, *arguments[1:])
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pipeline")}
    command = [sys.executable, "-m", "opmatrix", *arguments]
    return subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True)


def prepare(project: Project, *stages: str, operator: str = "group_norm") -> Project:
    for stage in stages:
        done = pipeline(project, stage, operator)
        assert done.returncode == 0, done.stderr
    return project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.copy(tmp_path_factory.mktemp("built"))
    return prepare(project, "codegen", "compile", "data")


@pytest.fixture
def few(tmp_path: Path) -> Project:
    """A project that a test may edit, with two models and without outputs."""
    project = Project.copy(tmp_path / "few", operators=operator_names(Project(ROOT).paths))
    cases = project.paths.cases("group_norm")
    cases.write_text(cases.read_text() + FEW)
    return project


def register(project: Project, part: str, operator: str = "group_norm") -> subprocess.CompletedProcess[str]:
    return pipeline(project, "register", operator, "--part", part)


def manifest(paths: Paths, part: str) -> list[dict[str, object]]:
    data = json.loads(paths.register_manifest("group_norm", part, torch="2.13").read_text())
    results: list[dict[str, object]] = data["results"]
    return results


def test_by_hand_it_runs_the_parts_that_doit_plans() -> None:
    """`dist` looks for a record of each, also where torch_op.py has no gradient."""
    paths = Paths(ROOT)
    for operator in load_operators(paths):
        planned = register_parts(paths, operator, "2.13") or ("schema",)
        assert {*parts(paths, operator)} == {*planned}, operator.name


def test_each_part_passes_without_output(built: Project) -> None:
    """The library exports to the same nodes, and its kernel runs every case."""
    for part in ("schema", "nodes", "kernel"):
        done = register(built, part)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {str(r["check"]) for r in manifest(built.paths, "schema")} == {
        "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic",
    }  # fmt: skip
    assert [r["model"] for r in manifest(built.paths, "nodes")] == [
        f"group_norm-custom-seed@torch2.13-{exporter}-opset18" for exporter in ("legacy", "dynamo")
    ]
    *results, loaded = manifest(built.paths, "kernel")
    assert loaded == {"library": sha256(built.paths.torch_library("group_norm"))}
    assert {"seed", "nan_float32", "transposed_float64", "empty_batch_float32"} <= {str(r["case"]) for r in results}
    assert all(float(str(r["tolerance_used"])) <= 1 for r in results)


@pytest.mark.parametrize(
    "parts", [(), ("--part", "kernel", "--part", "gradient")], ids=["all parts", "two parts, gradient last"]
)
def test_one_process_runs_several_parts(parts: tuple[str, ...], built: Project) -> None:
    """The gradient part defines the operator itself; the compiled library defines it again."""
    done = pipeline(prepare(built, "draw-inputs"), "register", "group_norm", *parts)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert manifest(built.paths, "gradient") and manifest(built.paths, "kernel")


def test_the_first_wrong_cases_are_shown_completely_and_each_is_replayed(few: Project) -> None:
    after_checks = "  if (x.numel() == 0) return;\n"
    few.replace("native/group_norm/kernel.h", after_checks, f"{after_checks}  epsilon += 1;\n")
    cases = few.paths.cases("group_norm")
    cases.write_text(cases.read_text() + FEW.replace('static("float64")', 'static("float64"), flat("float32")'))
    prepare(few, "codegen", "compile", "data")
    message = register(few, "kernel").stderr
    lines = [line for line in message.splitlines() if not line.startswith("  ")]
    assert message.splitlines()[1] == "  output y: float32 (3, 2, 1, 2), rtol=2.5e-07 atol=1e-07", (
        "the first has values"
    )
    assert len(lines) == 4 and re.match(r"group_norm in torch: \d+ more cases are wrong: \w+, ", lines[-1]), lines
    assert lines[-1].endswith("In full: each by python -m opmatrix register group_norm --part kernel --case NAME")
    last = lines[-1].partition(". In full")[0].rpartition(" ")[2]
    path = few.paths.register_manifest("group_norm", "kernel", torch="2.13")
    record = verdict.read_check(path)
    assert (record.outcome, record.detail) == ("failed", message.rstrip("\n")), "the report shows the same message"
    measured = json.loads(few.paths.mismatches(path).read_text())["mismatches"]
    assert len(measured) == 3 and {one["actual_is"] for one in measured} == {"kernel in torch"}
    done = pipeline(few, "register", "group_norm", "--part", "kernel", "--case", last)
    assert done.returncode == 8 and done.stderr.startswith(f"group_norm-{last} in torch: ")
    assert "\n  Mismatched elements: " in done.stderr and verdict.read_check(path) == record
    unknown = pipeline(few, "register", "group_norm", "--case", "sed")
    assert unknown.returncode == 2 and "group_norm has no case 'sed'; it has seed, " in unknown.stderr
    other = pipeline(few, "register", "group_norm", "--part", "schema", "--case", "seed")
    assert other.returncode == 2 and "leave out other parts" in other.stderr


def test_overridden_operators_without_faults_pass(few: Project) -> None:
    for operator in ("gelu", "inverse"):
        assert register(few, "schema", operator).returncode == 0


def test_a_missing_or_damaged_library_is_refused(few: Project) -> None:
    library = few.paths.torch_library("group_norm")
    done = register(few, "kernel")
    assert done.returncode == 8 and "python -m opmatrix compile group_norm" in done.stderr
    library.parent.mkdir(parents=True)
    library.write_bytes(b"not ELF")
    done = register(few, "kernel")
    assert done.returncode == 8
    assert "does not load in torch 2.13" in done.stderr and "Traceback" not in done.stderr


def test_a_definition_for_older_versions_of_torch_computes_the_same(few: Project) -> None:
    """As if this torch had no torch.library.custom_op, which came with 2.4."""
    few.replace("ops/add_and_round/torch_op.py", 'hasattr(torch.library, "custom_op")', "False")
    for operator in ("custom_op_one", "custom_op_two", "add_and_round"):
        prepare(few, "codegen", operator=operator)
    prepare(few, "data", operator="add_and_round")
    for part in ("schema", "kernel"):
        done = register(few, part, "add_and_round")
        assert done.returncode == 0, done.stderr
    few.replace("ops/add_and_round/torch_op.py", "library.impl(name, add_and_round,", "library.impl(name, fake,")
    done = register(few, "kernel", "add_and_round")
    assert done.returncode == 8 and "add_and_round-plain_float32 in torch: " in done.stderr
