"""Operators with strings pass all gates. tests/faults/strings.toml has the faults.

tests/projects/strings: strings in required, optional and variadic inputs, in a type variable with numbers, in outputs
of a declared shape and of one that the kernel decides, and beside a named rank.
"""

from __future__ import annotations

import json

import pytest

from tests.support.projects import ROOT, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.ort]

STRINGS = ROOT / "tests/projects/strings"
OPERATORS = sorted(path.name for path in (STRINGS / "ops").iterdir())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project, in which `doit` has run."""
    return Project.verified("strings", tmp_path_factory.mktemp("strings"), "opsets=9,18")


def test_every_gate_passes(project: Project) -> None:
    report = json.loads((project.paths.report / "report.json").read_text())
    assert {cell["op"]: cell["outcome"] for cell in report["cells"]} == dict.fromkeys(OPERATORS, "verified")
    drawn = [check for check in report["checks"] if check["check"] == "draw-inputs"]
    assert [(c["op"], c["outcome"], c["weak"]) for c in drawn] == [(name, "verified", []) for name in OPERATORS]


def test_a_model_is_checked_node_by_node(project: Project) -> None:
    model = "build/export/join_texts/custom/node-opset18/all/model.onnx"
    done = project.doit("check", model)
    assert done.returncode == 0 and "first string[3, 2], prefix string[]" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.deep
def test_the_sanitizers_find_nothing_but_a_planted_fault(project: Project) -> None:
    """Also ThreadSanitizer's program, which has strings in inputs and outputs."""
    project.passes("-n", "2", "opsets=9", "sanitize")
    kernel = project.root / "native/split_words/kernel.h"
    with edited(kernel, "  std::vector<std::string> all, without;", "  static std::string last; last = text.data[0];\n"
                "  std::vector<std::string> all, without;"):  # fmt: skip
        project.fails("opsets=9", "sanitize:split_words", message="WARNING: ThreadSanitizer: ")
