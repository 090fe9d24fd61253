"""`doit sanitize` finds no fault in any operator, and finds faults that the tests plant in kernel and bindings."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.declaration.load import load_operator, operator_names
from opmatrix.ort_checks.sanitize import ADDRESSES, THREADS
from opmatrix.records.verdict import Verdict, read
from opmatrix.signature.signature import has_ort_library
from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

OPERATORS = [
    name
    for name in operator_names(Project(ROOT).paths)
    if has_ort_library(load_operator(Project(ROOT).paths, name).spec)
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with all operators."""
    return Project.copy(tmp_path_factory.mktemp("sanitized"), operators=operator_names(Project(ROOT).paths))


def said(project: Project, name: str) -> Verdict:
    return read(project.paths.sanitized_verdict(name))


@pytest.mark.parametrize("name", OPERATORS)
def test_no_operator_has_a_fault(name: str, project: Project) -> None:
    project.passes("-n", "2", "opsets=18", f"sanitize:{name}")
    assert (said(project, name).outcome, said(project, name).detail) == ("verified", "")
    log = project.paths.log(f"sanitize:{name}").read_text()
    spec = load_operator(project.paths, name).spec
    wanted = [f"verify {name} "]
    rows = {row.case: row for row in said(project, name).cases}
    assert rows[ADDRESSES].outcome == "verified" and set(rows) == ({ADDRESSES} if spec.uses else {ADDRESSES, THREADS})
    if not spec.uses:
        assert rows[THREADS].outcome == "verified" and " calls in 4 threads, " in rows[THREADS].detail
        wanted.append(f"races {name}")
        torch = f"register {name} --part kernel --part search --part forbidden --sanitized"
        wanted += [f"ort-fuzz {name} --sanitized", *([torch] if spec.torch else [])]
    assert all(text in log for text in wanted), log


def test_it_runs_again_only_after_a_change_of_a_file_that_it_reads(project: Project) -> None:
    again = ("opsets=18", "sanitize:custom_op_two", "sanitize:dual_residual")
    project.passes(*again)
    assert "run, " not in project.doit(*again).stdout
    # A comment counts: it can move the lines of a finding.
    with edited(project.root / "native/custom_op_two/kernel.h", "halfway", "half-way"):
        listed = project.doit("list", "--all", "--status", "opsets=18").stdout
    status = {line.split()[1]: line.split()[0] for line in listed.splitlines() if "sanitize:" in line}
    assert (status["sanitize:custom_op_two"], status["sanitize:dual_residual"]) == ("R", "U")


def test_doit_without_arguments_does_not_run_it(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=["custom_op_two"])
    done = project.doit("opsets=18")
    assert done.returncode == 0 and "sanitize" not in done.stdout, done.stdout
    assert not project.paths.sanitized_verdict("custom_op_two").exists()


OUT_OF_BOUNDS, OVERFLOW = "heap-buffer-overflow", "runtime error: signed integer overflow"
SUM = "std::int64_t sum = INT64_MAX; sum += "
# The operator, the planted fault, the finding, and the call that finds it.
FAULTS = {
    "a kernel writes behind its output, in torch": (
        "dual_residual", "ops/dual_residual/spec.py", "  const Wide factor =",
        "  y_residual.data[y_residual.numel()] = T(1);\n  const Wide factor =", OUT_OF_BOUNDS, "register dual_residual",
    ),
    "a kernel writes behind its output, in ONNX Runtime": (
        "custom_op_two", "native/custom_op_two/kernel.h", "  parallel_for(",
        "  y.data[y.numel()] = T(1);\n  parallel_for(", OUT_OF_BOUNDS, "verify custom_op_two",
    ),
    "torch's binding overflows": (
        "dual_residual", "native/binding/stable/torch.h", "    if (!contiguous) copy_",
        f"    {SUM}sizes_.rank; if (sum == 0) return {{}};\n    if (!contiguous) copy_", OVERFLOW,
        "register dual_residual",
    ),
    "ONNX Runtime's binding overflows": (
        "custom_op_two", "native/binding/ort.h", "    return {static_cast<T*>(data), sizes};",
        f"    {SUM}sizes.rank; if (sum == 0) return {{}};\n    return {{static_cast<T*>(data), sizes}};", OVERFLOW,
        "verify custom_op_two",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, project: Project) -> None:
    name, path, old, new, found, command = FAULTS[fault]
    with edited(project.root / path, old, new):
        done = project.doit("opsets=18", f"sanitize:{name}")
    place = f"native/{name}/kernel.h:" if "kernel" in path else "kernel.h:" if "spec" in path else f"{path}:"
    verdict = said(project, name)
    assert verdict.outcome == "failed"
    for text in (verdict.detail, done.stdout + done.stderr):
        assert found in text and place in text and command in text, text


def test_a_forbidden_call_that_succeeds_is_reported(project: Project) -> None:
    """Faults that no sanitizer finds: a bool read as four bytes, and an attribute that is silently corrected."""
    binding = project.root / "native/binding"
    read = "_int64(info_, name, &value))) return value"
    with (
        edited(binding / "dtype.h", "if (dtype == found) return;", "if (dtype == found || *argument == 'v') return;"),
        edited(binding / "ort.h", f"{read};", f"{read} < 0 && *name == 'm' ? 0 : value;"),
    ):
        done = project.doit("compile:nms", "draw-inputs:nms")
    assert done.returncode == 0, done.stdout
    torch = project.stage("register", "nms", "--part", "forbidden").stderr
    assert "nms in torch computes what its declaration forbids: dtype of valid: int32\n" in torch
    runtime = project.stage("ort-fuzz", "nms").stderr
    assert "nms in ONNX Runtime computes what its declaration forbids: value of max_boxes: -1\n" in runtime
