"""`doit check` on models whose nodes are not sorted, or cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.addons.check.judged import judged
from tests.addons.check.test_blame import model

pytestmark = pytest.mark.ort


IF = "else_branch = e () => (s) { s = Neg (x) }>"
UNSORTED = {  # each wrong at 71b51ad8: shape inference fails, or onnx.checker refuses the model
    "a chain": model("y = Neg (b) b = Exp (a) a = Abs (x)"),
    "a constant": model("y = Add (x, c) c = Constant <value_float = 2.0> ()"),
    "a captured value": model(f"y = If (c) <then_branch = t () => (r) {{ r = Neg (q) }}, {IF} q = Exp (x)",
                              inputs="float[3] x, bool[1] c"),
    "before a branch": model(f"z = Neg (y) y = If (c) <then_branch = t () => (r) {{ r = Neg (x) }}, {IF}",
                             inputs="float[3] x, bool[1] c", outputs="float[3] z"),
    "a call": model("y = Neg (a) a = loc.f (x)", '<domain: "loc", opset_import: ["":17]> f (a) => (b) { b = Exp (a) }'),
    "backwards": model(" ".join(["y = Neg (t399)", *(f"t{n} = Neg (t{n - 1})" for n in range(399, 0, -1)),
                                 "t0 = Neg (x)"])),
}  # fmt: skip


@pytest.mark.parametrize("text", UNSORTED.values(), ids=UNSORTED)
def test_unsorted_nodes_are_a_note(text: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "right", found
    assert "Nodes in a graph must be topologically sorted" in found.said("note")
    assert "ONNX Runtime sorts the nodes of a graph, but not those of a branch or a function" in found.said("note")


@pytest.mark.parametrize(
    "text",
    [
        model(
            f"y = If (c) <then_branch = t () => (r) {{ r = Neg (q) q = Exp (x) }}, {IF}", inputs="float[3] x, bool[1] c"
        ),
        model("y = loc.f (x)", '<domain: "loc", opset_import: ["":17]> f (a) => (b) { b = Neg (c) c = Exp (a) }'),
    ],
    ids=["a branch", "a function"],
)
def test_unsorted_nodes_that_onnx_runtime_refuses_are_named_so(text: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "wrong"
    assert "must be topologically sorted" in found.reason


BRANCH = "y = If (c) <then_branch = t () => (r) { NODES }, " + IF
CYCLES = {  # each wrong at 71b51ad8, which did not name a cycle
    "of one": (model("a = Exp (x) y = Add (a, y)"), "Add (gives 'y') gives 'y' to itself"),
    "of three behind others": (
        model("a = Exp (x) b = Add (a, d) c = Neg (b) d = Abs (c) y = Neg (a)"),
        "Add (gives 'b') gives 'b' to Neg (gives 'c') gives 'c' to Abs (gives 'd') gives 'd' to the first of these 3",
    ),
    "in a branch": (
        model(BRANCH.replace("NODES", "q = Neg (r) r = Abs (q)"), inputs="float[3] x, bool[1] c"),
        "Neg (gives 'q') gives 'q' to Abs (gives 'r') gives 'r' to the first of these 2",
    ),
    "through a branch": (
        model(BRANCH.replace("NODES", "r = Neg (z)") + " z = Abs (y)", inputs="float[3] x, bool[1] c"),
        "If (gives 'y') gives 'y' to Abs (gives 'z') gives 'z' to the first of these 2",
    ),
    "through a function": (
        model("y = loc.f (z) z = Abs (y)", '<domain: "loc", opset_import: ["":17]> f (a) => (b) { b = Neg (a) }'),
        "Neg (gives 'b') in loc::f (gives 'y') gives 'y' to Abs (gives 'z') gives 'z' to the first of these 2",
    ),
}


@pytest.mark.parametrize(("text", "words"), CYCLES.values(), ids=CYCLES)
def test_the_nodes_and_values_of_a_cycle_are_named(text: str, words: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "wrong"
    assert found.reason == f"nodes: a cycle, which ONNX forbids: {words}. No order of these nodes runs: cut it"
