"""Existing operators with handwritten bindings in the style of the seeds pass the same gates, unchanged.

seed_norm has a torch.cc (torch::RegisterOperators) and an ort.cc (Ort::CustomOpBase) over Eigen, and no kernel.h;
damped a torch.cc (TORCH_LIBRARY) over its kernel; row_sums an ort.cc over a header in the project.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain.symbols import LEVEL, read_symbols
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

NAMES = ("seed_norm", "damped", "row_sums")
OPSETS = "opsets=18"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which everything is built and verified; a test that edits it restores it."""
    project = Project.copy(tmp_path_factory.mktemp("existing"), operators=())
    project.bring(*NAMES)
    project.passes("compile:seed_norm")  # for which nothing is generated, not even a folder
    project.passes("-n", "2", OPSETS)
    return project


def ran(done: subprocess.CompletedProcess[str]) -> set[str]:
    return set(re.findall(r"^\[\d+/\d+\] \d+\.\ds (\S+)", done.stdout, flags=re.MULTILINE))


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    assert len(found) == 2 * len(NAMES) and set(found.values()) == {"verified"}


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_part_is_complete(name: str, project: Project) -> None:
    """opcheck's tests and both exporters, with the compiled library, also where the library has no schema for torch."""

    def checks(part: str) -> list[str]:
        manifest = json.loads(project.paths.register_manifest(name, part, torch="2.13").read_text())
        return [result["check"] for result in manifest["results"]]

    assert set(checks("schema")) == {
        "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic",
    }  # fmt: skip
    assert checks("nodes") == ["export", "export"]


@pytest.mark.parametrize("name", NAMES)
def test_symbols_that_the_libraries_export_and_need(name: str, project: Project) -> None:
    torch, ort = project.paths.torch_library(name), project.paths.ort_library(name)
    level = {LEVEL} if name != "seed_norm" else set()  # which has no kernel.h
    assert read_symbols(torch).defined == level | ({"opmatrix_error"} if name == "row_sums" else set())
    assert read_symbols(ort).defined == level | {"RegisterCustomOps"}
    assert not [n for n in read_symbols(ort).needed if "torch" in n or "c10" in n]
    for place in (str(project.root), sys.prefix):
        assert place.encode() not in torch.read_bytes() + ort.read_bytes()


def test_a_second_run_repeats_nothing(project: Project) -> None:
    assert "all up to date" in project.doit(OPSETS).stdout


VERIFY = {
    f"verify:row_sums-custom@torch2.13-{e}-opset18-ort1.31" for e in ("legacy", "dynamo")
}  # fmt: skip


def test_a_wrong_value_in_ort_cc_alone(project: Project) -> None:
    """The message names ONNX Runtime, and no step of torch runs again."""
    with edited(project.root / "native/row_sums/ort.cc", "y[i] = total", "y[i] = 1 + total"):
        done = project.doit(OPSETS)
    assert ran(done) == {"compile:row_sums", "report", *VERIFY}
    assert "≠ mismatched row_sums-custom@torch2.13-legacy-opset18-ort1.31" in done.stdout
    assert "agrees with the expected output: kernel or reference (in longdouble) is wrong" in done.stdout
    again = project.doit(OPSETS)
    assert again.returncode == 0 and ran(again) == {"compile:row_sums", "report", *VERIFY}


@pytest.mark.parametrize("path", ["native/row_sums/ort.cc", "third_party/total.h"])
def test_a_changed_comment_compiles_and_runs_no_further_step(path: str, project: Project) -> None:
    text = (project.root / path).read_text()
    (project.root / path).write_text(text + "// a comment\n")
    assert ran(project.doit(OPSETS)) == {"compile:row_sums"}


def test_a_function_without_a_schema_has_other_types(project: Project) -> None:
    required = 'name="bias", type="float32"'
    with edited(project.root / "ops/seed_norm/spec.py", required, f"{required}, optional=True"):
        done = project.stage("register", "seed_norm", "--part", "kernel")
    assert done.returncode == 8, done.stderr
    assert "seed_norm: its torch.cc registers " in done.stderr and "Tensor? bias" in done.stderr
    assert "(Tensor _0, Tensor _1, Tensor _2, Tensor _3, float _4)" in done.stderr
    assert "Fix native/seed_norm/torch.cc or ops/seed_norm/spec.py" in done.stderr


def test_a_library_for_another_torch_is_refused(project: Project) -> None:
    path = project.paths.torch_version("damped")
    with edited(path, "2.13.0", "2.12.1"):
        done = project.stage("register", "damped", "--part", "kernel")
    assert done.returncode == 8
    assert "is compiled for torch 2.12.1+cpu with the new C++ ABI, and this is 2.13.0+cpu with the" in done.stderr
    assert "Compile it again with: python -m opmatrix compile damped" in done.stderr


def test_a_kernel_with_data_dependent_sizes_is_not_made_opaque() -> None:
    """Through torch's decomposition, its fake kernel could not create an unknown size."""
    import torch

    spec = load_operator(Paths(ROOT), "nms").spec
    module: dict[str, Any] = {}
    exec(python_modules.render(spec, {"kernel.h", "torch.cc"})["fake.py"], module)
    library = torch.library.Library(module["NAMESPACE"], "FRAGMENT")
    library.define(module["SCHEMA"])
    library.impl(module["NAME"], module["zeros"], "CompositeImplicitAutograd")
    with pytest.raises(RuntimeError, match=r"Register it for the CPU: TORCH_LIBRARY_IMPL\(\w+, CPU, m\) and m\.impl"):
        module["register_fake"]()


def test_sanitizers_find_a_fault_in_a_handwritten_binding(project: Project) -> None:
    assert project.doit("export:row_sums-custom@torch2.13-legacy-opset9").returncode == 0
    with edited(
        project.root / "native/row_sums/ort.cc", "total(row, row + shape[1])", "total(row, row + 9 + shape[1])"
    ):
        done = project.stage("sanitize", "row_sums")
    assert done.returncode == 12
    assert "heap-buffer-overflow" in done.stderr and "third_party/total.h" in done.stderr
