"""`doit check` blames no model for an exception of opmatrix or for a limit of onnx's reference and checker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from opmatrix.addons.check import compare, per_node
from opmatrix.addons.check import parts as outcome
from opmatrix.addons.check.float64_judge import Judgement
from opmatrix.basics import finding
from opmatrix.basics.errors import VerifyError
from opmatrix.project.paths import Paths
from tests.addons.check.judged import judged

pytestmark = pytest.mark.ort


def model(
    graph: str,
    *more: str,
    inputs: str = "float[3] x",
    outputs: str = "float[3] y",
    constants: str = "",
    opset: int = 17,
) -> str:
    head = (
        f'<ir_version: 10, opset_import: ["":{opset}, "loc":1]> g ({inputs}) => ({outputs}) {constants} {{ {graph} }}'
    )
    return "\n".join([head, *more])


# The comments here and below have the outcome at 71b51ad8.
TEXTS = {
    "of an attribute in a function": model(  # wrong
        'y = loc.f <k = "a"> (x)',
        '<domain: "loc", opset_import: ["":17]> f <k> (a) => (b) { c = Constant <value_string: string = @k> () '
        "b = Identity (c) }",
        outputs="string y",
    ),
    "of floats": model("y = Cast <to = 8> (x)", outputs="string[3] y"),  # disagree
    "of half floats": model("y = Cast <to = 8> (x)", inputs="float16[3] x", outputs="string[3] y"),  # disagree
    "of integers": model("y = Cast <to = 8> (x)", inputs="int64[3] x", outputs="string[3] y"),  # disagree
    "of large and small floats": model(  # disagree
        "c = Constant <value = float[3] {1e-20, 3e30, 0.1}> () z = Mul (x, c) y = Cast <to = 8> (z)",
        outputs="string[3] y",
    ),
    "of an input": model("y = Identity (x)", inputs="string[3] x", outputs="string[3] y"),  # right
    "that are compared": model(  # right
        'c = Constant <value_strings = ["a", "text", "b"]> () y = Equal (x, c)',
        inputs="string[3] x", outputs="bool[3] y", opset=19,
    ),
    "of a branch": model(  # disagree
        "c = Constant <value = bool {1}> () y = If (c) <then_branch = t () => (r) { r = Cast <to = 8> (x) }, "
        "else_branch = e () => (s) { s = Cast <to = 8> (x) }>",
        outputs="string[3] y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_are_compared_and_not_judged_in_float64(text: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "right", found


def test_texts_that_differ_are_no_numbers_to_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = per_node.References.evaluate

    def other(*given: Any) -> Any:
        outputs, precision = evaluate(*given)
        return {name: np.array(["other"] * 3) for name in outputs}, precision

    monkeypatch.setattr(per_node.References, "evaluate", other)
    found = judged(TEXTS["of floats"], tmp_path)
    assert found.outcome == "disagree"
    assert "its outputs are no numbers to evaluate in float64" in found.reason


def broken(text: str, **constants: list[bytes]) -> ModelProto:
    made = parser.parse_model(text)
    for name, texts in constants.items():
        made.graph.initializer.add(name=name, data_type=TensorProto.STRING, dims=[len(texts)], string_data=texts)
    return made


BAD = [b"\xff\xfe", b"a\0b"]
NOT_UTF8: dict[str, tuple[ModelProto, str]] = {
    "an output": (broken(model("y = Identity (s)", inputs="", outputs="string[2] y"), s=BAD), "unsupported"),  # wrong
    "no output": (  # wrong
        broken(model("y = Equal (s, s)", inputs="", outputs="bool[2] y", opset=19), s=BAD), "unknown",
    ),
    "a value between": (  # wrong
        broken(model("z = Identity (s) n = Size (z) y = Neg (x)", outputs="float[3] y, int64 n"), s=BAD), "unknown",
    ),
    "an attribute": (  # unknown
        broken(model("s = Constant () z = Size (s) y = Neg (x)", outputs="float[3] y, int64 z")), "unknown",
    ),
    "a constant that is an output": (  # wrong
        broken(model("y = Neg (x)", outputs="float[3] y, string[2] s"), s=BAD), "unsupported",
    ),
    "a cut character": (  # wrong
        broken(model("y = Identity (s)", inputs="", outputs="string[1] y"), s=[b"\xe2\x82"]), "unsupported",
    ),
}  # fmt: skip
_constant = NOT_UTF8["an attribute"][0].graph.node[0]
_constant.attribute.add(name="value_string", type=onnx.AttributeProto.STRING, s=BAD[0])


@pytest.mark.parametrize(("made", "outcome"), NOT_UTF8.values(), ids=NOT_UTF8)
def test_texts_that_are_not_utf8_are_no_fault_of_the_drawn_inputs(
    made: ModelProto, outcome: str, tmp_path: Path
) -> None:
    found = judged(made, tmp_path)
    assert found.outcome == outcome, found
    if outcome == "unsupported":
        assert "computes a string that is not UTF-8, which its Python interface does not return" in found.reason
    if made.graph.initializer:
        assert "nodes: the constant 's' has a string that is not UTF-8, which ONNX demands: b'" in found.said("note")


NO_NODES = {  # each unreadable at 71b51ad8: no ONNX model, or one without a node
    "an input": model("", outputs="float[3] x"),
    "a constant": model("", inputs="", outputs="float[2] w", constants="<float[2] w = {1.0, 2.0}>"),
    "both": model("", outputs="float[3] x, float[2] w", constants="<float[2] w = {1.0, 2.0}>"),
    "an input of open size": model("", inputs="float[N] x, int64[M, 2] i", outputs="int64[M, 2] i"),
    "a text": model("", inputs="string[2] x", outputs="string[2] x"),
    "an input twice": model("", outputs="float[3] x, float[3] x"),
}


@pytest.mark.parametrize("text", NO_NODES.values(), ids=NO_NODES)
def test_a_graph_without_nodes_is_a_model(text: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert found.outcome == "right", found
    assert found.reason.startswith("with the values of their names: ")


def test_an_output_that_no_node_makes_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = model("y = Neg (x)", outputs="float[3] y, float[3] x")
    assert judged(text, tmp_path).outcome == "right"
    values = per_node.inner_values

    def other(*given: Any) -> Any:
        return {name: value + (name == "x") for name, value in values(*given).items()}

    monkeypatch.setattr(per_node, "inner_values", other)
    found = judged(text, tmp_path)
    assert found.outcome == "wrong" and "agrees: not with the value of that name: output 'x'" in found.reason


def external(location: str, **more: int) -> ModelProto:
    made = parser.parse_model(model("y = Add (x, w)"))
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return made


INSIDE = {
    "next to the model": external("w.bin"),  # right
    "in a folder": external("sub/w.bin"),  # right
    "through the parent": external("../m/w.bin"),  # wrong
    "through a folder": external("sub/../w.bin"),  # right
    "a link": external("link.bin"),  # wrong
    "a hard link": external("hard.bin"),  # wrong
    "a part": external("long.bin", offset=4, length=12),  # wrong
}


def write_data(folder: Path) -> None:
    """Write what INSIDE and OUTSIDE name into a folder m of a model, and next to it."""
    (folder / "sub").mkdir(parents=True)
    values = np.float32([1, 2, 3]).tobytes()
    for name in ("w.bin", "sub/w.bin", "../w.bin"):
        (folder / name).write_bytes(values)
    (folder / "long.bin").write_bytes(b"1234" + values)
    (folder / "short.bin").write_bytes(values[:8])
    (folder / "link.bin").symlink_to("w.bin")
    (folder / "away.bin").symlink_to("../w.bin")
    os.link(folder / "long.bin", folder / "hard.bin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("made", INSIDE.values(), ids=INSIDE)
def test_data_that_only_onnx_refuses_are_read(made: ModelProto, folder: Path) -> None:
    found = judged(made, folder)
    assert found.outcome == "right", found


def test_a_model_may_be_a_link_next_to_its_data(folder: Path) -> None:
    """As in the cache of huggingface_hub, where the target of each link has another folder."""
    blobs, snapshot = folder / "blobs", folder / "snapshot"
    for made in (blobs, snapshot):
        made.mkdir()
    (blobs / "a").write_bytes(external("w.bin").SerializeToString())
    (folder / "w.bin").rename(blobs / "b")
    for name, target in (("model.onnx", "a"), ("w.bin", "b")):
        (snapshot / name).symlink_to(f"../blobs/{target}")
    found = judged(snapshot / "model.onnx", folder)
    assert found.outcome == "right", found


# At 71b51ad8 each was wrong, too; the comments have what it said.
OUTSIDE = {
    # onnx.checker: a symbolic link
    "a link away": (external("away.bin"), "are in 'away.bin', outside the folder of the model"),
    # not next to the model
    "a device": (external("/dev/zero"), "are in '/dev/zero', which is not next to the model"),
    # not next to the model
    "a folder": (external("sub"), "are in 'sub', which is not next to the model"),
    # not next to the model
    "nothing": (external("none.bin"), "are in 'none.bin', which is not next to the model"),
    # ONNX Runtime refuses the model
    "too short": (external("short.bin"), "are the bytes 0 to 12 of 'short.bin', which has 8"),
    # onnx.checker: hard links
    "past the end": (external("long.bin", offset=8, length=12), "are the bytes 8 to 20 of 'long.bin', which has 16"),
    # ONNX Runtime refuses the model
    "no number": (external("w.bin", offset="x"), "have an offset or a length that is no number"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("made", "words"), OUTSIDE.values(), ids=OUTSIDE)
def test_data_that_cannot_be_read_are_named(made: ModelProto, words: str, folder: Path) -> None:
    found = judged(made, folder)
    assert f"nodes: the values of 'w' {words}" in found.said("wrong")


def sparse(text: str, indices: list[Any], dims: list[int], *, constant: bool = False) -> ModelProto:
    made = parser.parse_model(text)
    parts = [numpy_helper.from_array(a, "w") for a in (np.float32([2, 3]), np.int64(indices))]
    value = helper.make_sparse_tensor(parts[0], parts[1], dims)
    if constant:
        made.graph.node[0].attribute.append(helper.make_attribute("sparse_value", value))
    else:
        made.graph.sparse_initializer.append(value)
    return made


SPARSE = {
    "an initializer": sparse(model("y = Mul (x, w)"), [0, 2], [3]),  # wrong
    "a matrix": sparse(model("y = MatMul (x, w)"), [0, 5], [3, 3]),  # wrong
    "places of two numbers": sparse(model("y = MatMul (x, w)"), [[0, 1], [2, 2]], [3, 3]),  # wrong
    "a constant node": sparse(model("w = Constant () y = Add (w, x)"), [0, 2], [3], constant=True),  # unknown
    "two uses": sparse(model("z = Mul (x, w) y = Add (z, w)"), [1, 2], [3]),  # wrong
}


@pytest.mark.parametrize("made", SPARSE.values(), ids=SPARSE)
def test_sparse_constants_are_dense_as_in_onnx_runtime(made: ModelProto, tmp_path: Path) -> None:
    found = judged(made, tmp_path)
    assert found.outcome == "right", found
    assert ("the constants 'w' are sparse" in found.said("note")) == (made.graph.node[0].op_type != "Constant")


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
    compare.run(
        Paths(root),
        model=tmp_path / "model.onnx",
        libraries=(),
        shapes=(),
        differs=False,
        own=True,
        into=tmp_path,
        **given,
    )
    findings, known = finding.read(tmp_path / compare.PART)
    agreed = finding.ok("agrees", "with torch 2.13: 1 output")
    assert outcome.judge([agreed, *findings], {"agrees": True, **known})[0] == "unknown"
    assert [f.mark for f in findings if "fails" in f.text] == [mark]
