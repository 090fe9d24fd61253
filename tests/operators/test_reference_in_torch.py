"""An operator whose reference is written in torch passes every gate: tests/projects/in_torch."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

KERNEL = "native/rms_scale/kernel.h"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("in_torch", tmp_path_factory.mktemp("in_torch"), "opsets=18")


def ran(output: str) -> set[str]:
    return set(re.findall(r"^\[\d+/\d+\] \d+\.\ds (\w[\w-]*)", output, flags=re.MULTILINE))


def test_the_report_says_in_which_torch_the_reference_was_computed(project: Project) -> None:
    found = project.records().values()
    assert {record["outcome"] for record in found} == {"verified"} and len(found) == 2
    assert all(re.fullmatch(r"torch 2\.\d+\.\d+", record["reference"]) for record in found)
    assert {case["judged_in"] for record in found for case in record["cases"]} == {"float64"}
    checks = json.loads((project.paths.report / "report.json").read_text())["checks"]
    assert {check["check"] for check in checks} >= {"search", "gradient", "cases"}
    assert not [check["weak"] for check in checks if check["weak"]]


def test_another_kernel_is_verified_without_the_reference(project: Project) -> None:
    with edited(project.root / KERNEL, "(from[c]) * scale;", "(from[c]) * (scale * (1 + 1e-15));"):
        done = project.passes("opsets=18")
    assert {"data", "draw-inputs", "cases"}.isdisjoint(ran(done.stdout)) and "verify" in done.stdout, done.stdout


@pytest.mark.deep
def test_an_edit_of_the_reference_repeats_what_uses_it(project: Project) -> None:
    with edited(project.root / "ops/rms_scale/reference.py", ".mean(1, keepdim=True)", ".sum(1, keepdim=True)"):
        done = project.doit("opsets=18")
    assert done.returncode == 1 and {"data", "draw-inputs", "cases"} <= ran(done.stdout)
    assert {record["outcome"] for record in project.records().values()} == {"mismatched"}, "in each exporter's cell"
