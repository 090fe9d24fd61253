"""What a gradient check records and prints: what its samples cover, what they do not, and the numbers of a fault.

tests/faults/gradients.toml has the faults that it finds, also with drawn inputs, of which there are none here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.forked import forked
from tests.support.projects import ROOT, replace_in

pytestmark = pytest.mark.torch


def check(root: Path, *edits: tuple[str, str, str], name: str = "mix") -> tuple[str, list[dict[str, Any]], str]:
    """Return the message of the gradient part, or "", the results in its record, and what it prints."""
    paths = Paths(root)
    shutil.copytree(ROOT / "tests/projects/gradients/ops" / name, paths.op(name))
    for file, old, new in edits:
        replace_in(paths.op(name) / f"{file}.py", old, new)

    def run() -> None:
        from opmatrix.search import drawn
        from opmatrix.torch_checks import register

        drawn.write(paths.drawn_inputs(name), [])
        register.run(paths, load_operator(paths, name), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    message = forked(run, root / "output")
    record = json.loads(paths.register_manifest(name, "gradient", torch="2.13").read_text())
    return message, record["results"], (root / "output").read_text()


def test_a_right_gradient_passes_and_the_record_has_what_was_covered(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path)
    assert message == printed == ""
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert covered["inputs"] == ["bias", "x"]
    assert covered["dtypes"] == ["bias: float32", "bias: float64", "x: float32", "x: float64"]
    assert {*covered["attributes"]["dim"]} == {-2, -1, 0, 1}


def test_an_operator_without_float64_is_checked_in_a_float64_instance(tmp_path: Path) -> None:
    message, results, _ = check(
        tmp_path,
        ("spec", '("float32", "float64")', '("float32",)'),
        ("spec", '            "float64": Tolerance(rtol=1e-12, atol=1e-12),\n', ""),
        ("cases", '    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),\n', ""),
    )
    assert message == ""
    assert {"gradcheck", "gradgradcheck", "samples"} == {r["check"] for r in results}
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert {"x: float32", "bias: float32"} <= {*covered["dtypes"]}


def test_a_gradient_that_is_no_derivative_is_compared_with_its_own_reference(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path, name="quant")
    assert message == printed == ""
    (covered,) = results
    assert covered["not_a_derivative"] == "straight-through: the derivative of rounding is 0"
    assert covered["dtypes"] == ["x: float32", "x: float64"]


def test_a_jump_that_a_rounding_crosses_is_no_fault(tmp_path: Path) -> None:
    message, results, _ = check(tmp_path, name="gate")
    assert message == ""
    assert any("x" in r.get("inputs", ()) for r in results)


@pytest.mark.parametrize(
    ("old", "new", "instance"),
    [
        ("grad.sum(0) if", "0 * grad.sum(0) if", "bias (2,), in a float64 instance"),
        ("    return of_x", "    assert x.dtype == torch.float64\n    return of_x", ""),
    ],
    ids=["numbers", "an error"],
)
def test_numbers_that_differ_are_kept(old: str, new: str, instance: str, tmp_path: Path) -> None:
    """The case of float32, the only one with a bias, is checked in a float64 instance as well."""
    message, _, _ = check(tmp_path, ("torch_op", old, new))
    assert message.startswith("mix-single: gradient: ") and f"Sample: T=float32, dim=1, x (3, 2), {instance}" in message
    assert "Replay: python -m opmatrix register mix --part gradient" in message
    assert bool([*(tmp_path / "build").rglob("*.mismatches.json")]) == bool(instance)


@pytest.mark.parametrize(
    ("edits", "note"),
    [
        (
            [("cases", "X | BIAS", "X")],
            "no sample covers bias: no usable sample gives it. Add a small, finite case that does",
        ),
        (
            [
                ("torch_op", "of_bias = grad.sum(0)", "of_bias = 0 * grad.sum(0)"),
                ("reference", "y + bias", "y + 0 * bias"),
            ],
            "no sample covers bias: its gradient is zero in every sample. Add a case in which it is not",
        ),
        (
            [("spec", "minimum=-2, maximum=1", "minimum=1, maximum=2")],
            "every sample has dim=1. Add a small, finite case with another",
        ),
    ],
)
def test_what_no_sample_covers_is_printed_and_recorded(
    edits: list[tuple[str, str, str]], note: str, tmp_path: Path
) -> None:
    message, results, printed = check(tmp_path, *edits)
    assert message == ""
    assert f"mix: gradient: {note}\n" in printed
    assert note in [r.get("note") for r in results]
