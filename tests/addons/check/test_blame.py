"""`doit check` blames no model for an exception of opmatrix, and finds faults that are planted in its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

from opmatrix.addons.check import compare, functions, per_node
from opmatrix.addons.check import parts as outcome
from opmatrix.addons.check.float64_judge import Judgement
from opmatrix.basics import finding
from opmatrix.basics.errors import VerifyError
from opmatrix.project.paths import Paths
from tests.addons.check.judged import judged
from tests.addons.check.judged import model_text as model

pytestmark = pytest.mark.ort


OWN, SUB = '<domain: "loc", opset_import: ["":17, "sub":1]>', '<domain: "sub", opset_import: ["":17]>'
# The model; a part of opmatrix, what it does instead of what it did; how the outcome and its reason begin, and words.
PLANTED: dict[str, tuple[str, Any, str, Any, Sequence[str]]] = {
    "texts": (
        model("y = Cast <to = 8> (x)", outputs="string[3] y"), per_node.References, "evaluate",
        lambda did: lambda *given: (dict.fromkeys(did(*given)[0], np.array(["other"] * 3)), did(*given)[1]),
        ("disagree: ", "reason: its outputs are no numbers to evaluate in float64")),
    "a sequence": (
        model("y = SequenceConstruct (x, x)", outputs="seq(float[3]) y", opset=18), per_node.References, "evaluate",
        lambda did: lambda *given: ({n: [2 * v for v in vs] for n, vs in did(*given)[0].items()}, did(*given)[1]),
        ("disagree: ", "reason: its outputs are no tensors to evaluate in float64")),
    "an output that no node makes": (
        model("y = Neg (x)", outputs="float[3] y, float[3] x"), per_node, "inner_values",
        lambda did: lambda *given: {name: v + (name == "x") for name, v in did(*given).items()},
        ("wrong: ", "reason: agrees: not with the value of that name: output 'x'")),
    # The values of ONNX Runtime, as of a kernel of the project in a function that alone imports its domain.
    "a node of a function that is not called": (
        model("y = loc.f (x)", f"{OWN} f (a) => (b) {{ b = sub.h (a) }}", f"{SUB} h (a) => (b) {{ b = Neg (a) }}"),
        per_node.References, "evaluate",
        lambda did: lambda *given: ({name: v + 1 for name, v in did(*given)[0].items()}, None),
        ("wrong: first node: Neg (gives 'b') in sub::h (gives 'b') in loc::f (gives 'y'): ",)),
    # The nodes that replace the call lose the value of its attribute.
    "a function that ONNX Runtime computes otherwise": (
        model("y = loc.f <alpha = 0.5> (x)", "f <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"),
        functions._Inliner, "_instance",
        lambda did: lambda self, node, names, _, call: did(self, node, names, {}, call),
        ("wrong: ", "reason: computes other outputs where the nodes of the functions replace their calls: output 'y'",
         "reason: onnx.inliner.inline_local_functions(model)")),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, part, function, instead, said = PLANTED[name]
    if name == "a node of a function that is not called":
        monkeypatch.setattr(per_node, "judge", lambda found: None)
    monkeypatch.setattr(part, function, instead(getattr(part, function)))
    judged(text, tmp_path).is_said(*said)


class OursError(Exception):
    """Not one that opmatrix names."""


OURS = {  # where an exception of opmatrix is planted, and what is compared nevertheless
    "evaluate": (per_node.References, "node by node: 1 node"),
    "compare_value": (per_node, ""),
    "compare_nodes": (compare, ""),
    "first_wrong": (compare, ""),
    "differs_inlined": (compare, "node by node: 2 nodes"),
    "passed_through": (compare, "node by node: 2 nodes"),
}


@pytest.mark.parametrize(("name", "where", "agrees"), [(name, *row) for name, row in OURS.items()], ids=OURS)
def test_an_exception_of_opmatrix_says_nothing_about_the_model(
    name: str, where: Any, agrees: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a node does not hide the comparison of the others. It is a fault, of opmatrix, and no agreement."""
    before = getattr(where, name)

    def raises(*given: Any, **more: Any) -> Any:
        if name != "evaluate" or given[1].op_type == "Exp":
            raise OursError("of ours")
        return before(*given, **more)

    monkeypatch.setattr(where, name, raises)
    found = judged(
        model("a = Exp (x) y = loc.f (a)", '<domain: "loc", opset_import: ["":17]> f (a) => (b) { b = Neg (a) }'),
        tmp_path,
    )
    assert found.outcome == "unknown", found
    faults = found.said("wrong").splitlines()
    assert faults and all(line.startswith("check: opmatrix fails ") for line in faults)
    assert all("OursError: of ours. This is no fault of the model: open an issue" in line for line in faults)
    assert agrees in found.said("ok")


def test_a_wrong_node_before_an_exception_of_opmatrix_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = per_node.References.evaluate

    def raises(self: Any, node: Any, taken: Any) -> Any:
        if node.op_type == "Neg":
            raise OursError("of ours")
        values, judge = evaluate(self, node, taken)
        return {name: value + 1 for name, value in values.items()}, judge

    monkeypatch.setattr(per_node.References, "evaluate", raises)
    monkeypatch.setattr(per_node, "judge", lambda found: Judgement(outcome="wrong", text="planted"))
    found = judged(model("a = Exp (x) y = Neg (a)"), tmp_path)
    assert found.outcome == "wrong" and found.reason.startswith("first node: Exp (gives 'a')"), found


@pytest.mark.parametrize(("error", "mark"), [(OursError("of ours"), "wrong"), (VerifyError("it fails"), "note")])
def test_a_node_of_the_project_that_is_not_compared_is_not_right(
    error: Exception, mark: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the outputs of the model agree with the expected ones, which the same kernel may have computed."""

    def raises(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(per_node.References, "evaluate", raises)
    made = model("y = com.microsoft.Inverse (x)", inputs="float[3,3] x", outputs="float[3,3] y")
    (tmp_path / "model.onnx").write_bytes(parser.parse_model(made.replace("loc", "com.microsoft")).SerializeToString())
    given: dict[str, Any] = dict.fromkeys(("inputs", "against", "rtol", "atol"))
    given |= {"libraries": (), "shapes": (), "differs": False, "own": True}
    compare.run(Paths(root), model=tmp_path / "model.onnx", into=tmp_path, **given)
    findings, known = finding.read(tmp_path / compare.PART)
    agreed = finding.ok("agrees", "with torch 2.13: 1 output")
    assert outcome.judge([agreed, *findings], {"agrees": True, **known})[0] == "unknown"
    assert [f.mark for f in findings if "fails" in f.text] == [mark]
