"""The property test shrinks what it finds, and a counterexample becomes a case. tests/faults has faults in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.ort_checks import save_case
from opmatrix.project.paths import Paths
from tests.support.building import build, copy_project
from tests.support.double import CELL
from tests.support.forked import forked
from tests.support.projects import edited
from tests.support.taken_away import replayed

pytestmark = [pytest.mark.torch, pytest.mark.compile, pytest.mark.slow]

RESULT = "const double variance = square / static_cast<double>(count);"

# File below native/, old text, planted text, and the message.
FAULTS = {
    "nan": ("group_norm/kernel.h", RESULT, "if (square != square) return {0, 0, 1};\n  " + RESULT, "y: "),
    "strides": ("binding/stable/torch.h", "contiguous ? tensor_ : copy_;", "tensor_;", "y: "),
    "refuses": ("group_norm/kernel.h", "num_groups < 0x1p62F", "num_groups < 2", "the kernel rejects what the refer"),
    "accepts": ("group_norm/kernel.h", "static_cast<std::int64_t>(num_groups) == 0,",
        "static_cast<std::int64_t>(num_groups) >= 0,", "the kernel computes what the reference rejects: "),
}  # fmt: skip

# What the folder of the input prints, in ONNX Runtime.
TAKEN_AWAY = {
    "nan": " elements differ beyond rtol=",
    "refuses": "ONNX Runtime raises ",
    "accepts": "ONNX Runtime computes what the reference rejects: ",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    from opmatrix.search import draw_inputs

    paths = copy_project(tmp_path_factory.mktemp("search"))
    draw_inputs.run(paths, build(paths))
    return paths


def search(paths: Paths, *, seconds: float | None = None) -> str:
    """Return the message of the error that the property test raises, or ""; `seconds` limits the shrinking."""
    from opmatrix.toolchain import compile

    def run() -> None:
        from opmatrix.torch_checks import property_test, register

        property_test.SECONDS = 500 if seconds is None else seconds
        property_test.OVER_SECONDS = 500
        register.run(paths, load_operator(paths, "group_norm"), part="search")

    import torch  # noqa: F401  # once for all children

    compile.run(paths, load_operator(paths, "group_norm"))
    return forked(run, paths.root / "output")


def test_a_right_kernel_passes_without_output(paths: Paths) -> None:
    assert search(paths) == ""
    assert (paths.root / "output").read_text() == ""
    assert not (paths.root / ".hypothesis").exists() and not Path(".hypothesis/examples").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_found_and_its_input_shrunk(fault: str, paths: Paths, tmp_path: Path) -> None:
    file, old, new, expected = FAULTS[fault]
    with edited(paths.native / file, old, new):
        message = search(paths)
    found = re.fullmatch(
        rf"group_norm-(found_\w+) in torch: ({re.escape(expected)}.*)\. The smallest that hypothesis found: (.*)\. "
        r"Keep it as a case with: python -m opmatrix adopt-case group_norm \1",
        message,
        re.DOTALL,
    )
    assert found, message
    inputs = found[3]
    if fault == "accepts":  # which needs no special values and no special strides
        assert "layout" not in inputs and "specials" not in inputs
    if fault == "strides":
        assert "layout" in inputs
    if fault == "nan":
        assert re.search(r"nan|inf", inputs)
    if fault in TAKEN_AWAY:
        operator = load_operator(paths, "group_norm")
        save_case.run(paths, operator, lowering=None, cells=[CELL], case=found[1], into=tmp_path / "saved")
        done = replayed(tmp_path / "saved")
        assert done.returncode == 1 and TAKEN_AWAY[fault] in done.stdout, done.stdout + done.stderr


def test_a_counterexample_is_reported_if_shrinking_takes_too_long(paths: Paths) -> None:
    """When the time is over, shrinking stops, and the message is that of the first failure."""
    file, old, new, _ = FAULTS["nan"]
    with edited(paths.native / file, old, new):
        shrunk, cut = search(paths), search(paths, seconds=0.0)
    counts = [int(re.findall(r"in torch: y: \d+ of (\d+) elements? differ", message)[0]) for message in (shrunk, cut)]
    assert counts[0] < counts[1]


def test_a_counterexample_becomes_a_case(paths: Paths) -> None:
    from opmatrix.basics.errors import UsageError
    from opmatrix.search import adopt_case

    name = next(paths.failing_case("group_norm", "x").parent.glob("*.txt")).stem
    cases = paths.cases("group_norm")
    original, before = cases.read_text(), load_operator(paths, "group_norm").models
    try:
        adopt_case.run(paths, load_operator(paths, "group_norm"), case=name)
        operator = load_operator(paths, "group_norm")
        assert operator.models[:-1] == before
        assert operator.models[-1].cases[0].name == name
        with pytest.raises(UsageError, match=f"has the case '{name}' already"):
            adopt_case.run(paths, operator, case=name)
    finally:
        cases.write_text(original)
    with pytest.raises(UsageError, match="no case 'found_0' was found for group_norm, there is: found_"):
        adopt_case.run(paths, load_operator(paths, "group_norm"), case="found_0")
