"""Faults of a kernel that only the search of verify finds. tests/faults/differ.toml plants those that cases show."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import VerifyError
from opmatrix.basics.version import minor
from opmatrix.codegen import write_code
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.export import write_node_models
from opmatrix.ort_checks import save_case, verify
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.records.verdict import Verdict
from opmatrix.search import draw_inputs
from opmatrix.toolchain import compile
from tests.support.building import with_native
from tests.support.projects import ROOT
from tests.support.taken_away import replayed

pytestmark = [pytest.mark.compile, pytest.mark.ort]

CELL = Cell(torch=None, exporter="node", opset=18, ort=minor(installed().onnxruntime))
DIFFER = Paths(ROOT / "tests/projects/differ")
KERNEL, REFERENCE = DIFFER.kernel("differ").read_text(), DIFFER.reference("differ").read_text()
RIGHT = load_operator(DIFFER, "differ")


def operator(kernel: str) -> Operator:
    return replace(RIGHT, spec=replace(RIGHT.spec, kernel=kernel))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return a project with all files but the kernel."""
    paths = with_native(tmp_path_factory.mktemp("differ"), "differ", REFERENCE)
    draw_inputs.run(paths, operator(KERNEL))
    return paths


@pytest.fixture
def tried(paths: Paths) -> Callable[[str], tuple[Verdict, str]]:
    """Return a function from a kernel to its verdict and the message of verify."""

    def tried(kernel: str) -> tuple[Verdict, str]:
        gc.collect()  # a session that is still alive would keep the library of the kernel before, of the same path
        made = operator(kernel)
        write_code.run(paths, made)
        compile.run(paths, made)
        write_data.run(paths, made)
        write_node_models.run(paths, made, lowering="custom", cell=CELL)
        message = ""
        try:
            verify.run(paths, made, lowering="custom", cell=CELL)
        except VerifyError as error:
            message = str(error)
        return verdict.read(paths.verdict("differ", "custom", CELL)), message

    return tried


def test_the_right_kernel_is_verified(tried: Callable[[str], tuple[Verdict, str]]) -> None:
    found, message = tried(KERNEL)
    assert (found.outcome, message) == ("verified", "")


@pytest.mark.parametrize(
    ("new", "message", "elsewhere"),
    [
        ("if (x.size(1) == 7 && x.numel() > 0) first.data[0] += 1;", "first: 1 of ", "first: 1 of "),
        (
            'KERNEL_CHECK(x.size(1) != 7, "differ: seven");',
            "the kernel rejects what the reference computes: Non-zero status code returned while running Differ node",
            "differ: seven",
        ),
        (
            "if (x.size(1) == 7 && x.numel() > 0) const_cast<T*>(x.data)[0] = 77;",
            "the kernel writes into its input",
            "",
        ),
        (
            "static int runs; if (x.size(1) == 7 && x.numel() > 0) first.data[0] += runs++ % 2;",
            "the second run gives other numbers than the first: first: ",
            "first: a second run gives 1 other values",
        ),
    ],
    ids=["value", "refuses", "input", "second_run"],
)
def test_the_search_finds_a_fault_that_no_case_shows(
    tried: Callable[[str], tuple[Verdict, str]], paths: Paths, new: str, message: str, elsewhere: str, tmp_path: Path
) -> None:
    """No case has seven columns. The message has a small input, whose name `--case` takes; it fails `elsewhere` too."""
    kernel = KERNEL.replace("// after", new)
    found, said = tried(kernel)
    assert [c.case for c in found.cases if c.outcome != "verified"] == ["drawn_inputs"]
    assert re.search(rf"differ-found_\w+ in ONNX Runtime: {re.escape(message)}", said), said
    shown = re.search(r"The smallest of the random inputs that fail: .* adopt-case differ (found_\w+)", said, re.DOTALL)
    assert shown, said
    made = operator(kernel)
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify.run(paths, made, lowering="custom", cell=CELL, case=shown[1])
    path = paths.mismatches(paths.verdict("differ", "custom", CELL))
    records = json.loads(path.read_text())["mismatches"] if path.exists() else []
    if message.startswith(("first", "the second run")):
        assert [(one["case"], one["drawn"], one["output"]) for one in records] == [("drawn_inputs", shown[1], "first")]
        assert records[0]["differing"] == 1 and records[0]["maps"] and "Mismatched elements: 1 / " in said
    for case in (shown[1], "drawn_inputs") if records else (shown[1],):
        save_case.run(paths, made, lowering=None, cells=[CELL], case=case, into=tmp_path / case)
        done = replayed(tmp_path / case)
        assert elsewhere in done.stdout and done.returncode == (1 if elsewhere else 0), done.stdout + done.stderr
