"""The outcome of a model in `doit check`: what is wrong in it, and what is a limit of ONNX Runtime or of onnx."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from opmatrix.addons.check import run_model
from opmatrix.addons.check.parts import PartOptions
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError
from tests.addons.check.judged import judged
from tests.addons.check.judged import model_text as text

pytestmark = pytest.mark.ort


def with_texts(made: str, *values: bytes) -> ModelProto:
    """Return a model with a constant s of these texts."""
    found = parser.parse_model(made)
    found.graph.initializer.add(name="s", data_type=TensorProto.STRING, dims=[len(values)], string_data=values)
    return found


def external(location: str, **more: object) -> ModelProto:
    """Return a model that adds values of a file to x."""
    made = parser.parse_model(text("y = Add (x, w)"))
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return made


def write_data(folder: Path) -> None:
    """Write what `external` names into a folder m of a model, and next to it."""
    (folder / "sub").mkdir(parents=True)
    values = np.float32([1, 2, 3]).tobytes()
    for name in ("w.bin", "sub/w.bin", "../w.bin"):
        (folder / name).write_bytes(values)
    (folder / "long.bin").write_bytes(b"1234" + values)
    (folder / "short.bin").write_bytes(values[:8])
    (folder / "link.bin").symlink_to("w.bin")
    (folder / "away.bin").symlink_to("../w.bin")
    os.link(folder / "long.bin", folder / "hard.bin")


def sparse(made: str, indices: list[Any], dims: list[int]) -> ModelProto:
    """Return a model with a sparse constant w, which is the value of its first node if this is a Constant."""
    found = parser.parse_model(made)
    parts = [numpy_helper.from_array(a, "w") for a in (np.float32([2, 3]), np.int64(indices))]
    value = helper.make_sparse_tensor(parts[0], parts[1], dims)
    if found.graph.node[0].op_type == "Constant":
        found.graph.node[0].attribute.append(helper.make_attribute("sparse_value", value))
    else:
        found.graph.sparse_initializer.append(value)
    return found


def recurrent(node: str, count: int) -> str:
    w, r = (f"{{{', '.join(['0.5'] * size)}}}" for size in (2 * count, count))
    constants = f"<float[1,{count},2] w = {w}, float[1,{count},1] r = {r}, int32[2] n = {{3, 1}}>"
    return text(f"y = {node}", inputs="float[3,2,2] x", outputs="float[3,1,2,1] y", constants=constants, opset=14)


def on_condition(then: str, more: str = "", before: str = "", outputs: str = "float[3] y") -> str:
    branches = f"then_branch = t () => (r) {{ {then} }}, else_branch = e () => (s) {{ s = Neg (x) }}"
    return text(f"{before} y = If (c) <{branches}> {more}", inputs="float[3] x, bool[1] c", outputs=outputs)


OWN = '<domain: "loc", opset_import: ["":17]>'  # the header of a function that does not import its own domain
CAST, IDENTITY, NEG = "y = Cast <to = 8> (x)", "y = Identity (s)", "y = Neg (x)"
BAD = b"\xff\xfe", b"a\0b"
NO_TEXT = "reason: computes a string that is not UTF-8, which its Python interface does not return"
S_NOT_UTF8 = "note: nodes: the constant 's' has a string that is not UTF-8, which ONNX demands: b'"
BAD_ATTRIBUTE = parser.parse_model(text("s = Constant () z = Size (s) y = Neg (x)", outputs="float[3] y, int64 z"))
BAD_ATTRIBUTE.graph.node[0].attribute.add(name="value_string", type=onnx.AttributeProto.STRING, s=BAD[0])
W = "<float[2] w = {1.0, 2.0}>"
OF_NAMES, ALL, ONE = "right: with the values of their names: ", "right: with onnx.reference, node by node: ", "1 node\n"
OF_W = "wrong: nodes: the values of 'w' "
SPARSE = "note: the constants 'w' are sparse"
TWO = (
    "reason: But onnx.reference and ONNX Runtime with the functions inlined agree with each other: two of three do. "
    "The model may be right. Inline the functions"
)
SORTED = (
    "note: Nodes in a graph must be topologically sorted",
    "note: ONNX Runtime sorts the nodes of a graph, but not those of a branch or a function",
)
QUANTIZED = "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)"
MOMENTS = "<float[3] s = {1, 2, 3}, float[3] b = {0, 1, 2}, float[3] m = {1, 0, 4}, float[3] v = {1, 9, 2}>"
SAME_LOWER = 'y = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_LOWER", strides = [2, 2]> (x)'
# The model, the beginning of its outcome and reason, and words of them or of findings.
OUTCOMES: dict[str, tuple[Any, ...]] = {
    # Texts are compared, and not judged in float64.
    "texts of an attribute in a function": (
        text('y = loc.f <k = "a"> (x)', "f <k> (a) => (b) { c = Constant <value_string: string = @k> () "
             "b = Identity (c) }", outputs="string y"), "right: "),
    "texts of floats": (text(CAST, outputs="string[3] y"), "right: "),
    "texts of half floats": (text(CAST, inputs="float16[3] x", outputs="string[3] y"), "right: "),
    "texts of integers": (text(CAST, inputs="int64[3] x", outputs="string[3] y"), "right: "),
    "texts of large and small floats": (
        text("c = Constant <value = float[3] {1e-20, 3e30, 0.1}> () z = Mul (x, c) y = Cast <to = 8> (z)",
             outputs="string[3] y"), "right: "),
    "texts of an input": (text("y = Identity (x)", inputs="string[3] x", outputs="string[3] y"), "right: "),
    "texts that are compared": (
        text('c = Constant <value_strings = ["a", "text", "b"]> () y = Equal (x, c)', inputs="string[3] x",
             outputs="bool[3] y", opset=19), "right: "),
    "texts of a branch": (
        text("c = Constant <value = bool {1}> () y = If (c) <then_branch = t () => (r) { r = Cast <to = 8> (x) }, "
             "else_branch = e () => (s) { s = Cast <to = 8> (x) }>", outputs="string[3] y"), "right: "),
    # Texts that are not UTF-8 are no fault of the drawn inputs.
    "not UTF-8: an output": (
        with_texts(text(IDENTITY, inputs="", outputs="string[2] y"), *BAD), "unsupported: ", NO_TEXT, S_NOT_UTF8),
    "not UTF-8: no output": (
        with_texts(text("y = Equal (s, s)", inputs="", outputs="bool[2] y", opset=19), *BAD), "unknown: ", S_NOT_UTF8),
    "not UTF-8: a value between": (
        with_texts(text("z = Identity (s) n = Size (z) y = Neg (x)", outputs="float[3] y, int64 n"), *BAD), "unknown: ",
        S_NOT_UTF8),
    "not UTF-8: an attribute": (BAD_ATTRIBUTE, "unknown: "),
    "not UTF-8: a constant that is an output": (
        with_texts(text(NEG, outputs="float[3] y, string[2] s"), *BAD), "unsupported: ", NO_TEXT, S_NOT_UTF8),
    "not UTF-8: a cut character": (
        with_texts(text(IDENTITY, inputs="", outputs="string[1] y"), b"\xe2\x82"), "unsupported: ", NO_TEXT,
        S_NOT_UTF8),
    # A graph without nodes is a model.
    "no nodes: an input": (text("", outputs="float[3] x"), OF_NAMES),
    "no nodes: a constant": (text("", inputs="", outputs="float[2] w", constants=W), OF_NAMES),
    "no nodes: both": (text("", outputs="float[3] x, float[2] w", constants=W), OF_NAMES),
    "no nodes: an open size": (text("", inputs="float[N] x, int64[M, 2] i", outputs="int64[M, 2] i"), OF_NAMES),
    "an output that no node makes": (text(NEG, outputs="float[3] y, float[3] x"), "right: "),
    "no nodes: a text": (text("", inputs="string[2] x", outputs="string[2] x"), OF_NAMES),
    "no nodes: an input twice": (text("", outputs="float[3] x, float[3] x"), OF_NAMES),
    # Data that only onnx refuses are read, and data that cannot be read are named.
    "data next to the model": (external("w.bin"), "right: "),
    "data in a folder": (external("sub/w.bin"), "right: "),
    "data through the parent": (external("../m/w.bin"), "right: "),
    "data through a folder": (external("sub/../w.bin"), "right: "),
    "data in a link": (external("link.bin"), "right: "),
    "data in a hard link": (external("hard.bin"), "right: "),
    "data in a part": (external("long.bin", offset=4, length=12), "right: "),
    "data outside": (external("../w.bin"), "", f"{OF_W}are in '../w.bin', outside the folder of the model"),
    "data in a link away": (external("away.bin"), "", f"{OF_W}are in 'away.bin', outside the folder of the model"),
    "data in a device": (external("/dev/zero"), "", f"{OF_W}are in '/dev/zero', which is not next to the model"),
    "data that are a folder": (external("sub"), "", f"{OF_W}are in 'sub', which is not next to the model"),
    "data in nothing": (external("none.bin"), "", f"{OF_W}are in 'none.bin', which is not next to the model"),
    "data too short": (external("short.bin"), "", f"{OF_W}are the bytes 0 to 12 of 'short.bin', which has 8"),
    "data past the end": (
        external("long.bin", offset=8, length=12), "", f"{OF_W}are the bytes 8 to 20 of 'long.bin', which has 16"),
    "data at no number": (external("w.bin", offset="x"), "", f"{OF_W}have an offset or a length that is no number"),
    # Sparse constants are dense as in ONNX Runtime.
    "sparse: an initializer": (sparse(text("y = Mul (x, w)"), [0, 2], [3]), "right: ", SPARSE),
    "sparse: a matrix": (sparse(text("y = MatMul (x, w)"), [0, 5], [3, 3]), "right: ", SPARSE),
    "sparse: places of two numbers": (
        sparse(text("y = MatMul (x, w)"), [[0, 1], [2, 2]], [3, 3]), "right: ", SPARSE),
    "sparse: a constant node": (sparse(text("w = Constant () y = Add (w, x)"), [0, 2], [3]), "right: ", f"no {SPARSE}"),
    "sparse: two uses": (sparse(text("z = Mul (x, w) y = Add (z, w)"), [1, 2], [3]), "right: ", SPARSE),
    # Nodes that ONNX Runtime sorts are a note, and those that it does not are wrong.
    "unsorted: a chain": (text("y = Neg (b) b = Exp (a) a = Abs (x)"), "right: ", *SORTED),
    "unsorted: a constant": (text("y = Add (x, c) c = Constant <value_float = 2.0> ()"), "right: ", *SORTED),
    "unsorted: a captured value": (on_condition("r = Neg (q)", "q = Exp (x)"), "right: ", *SORTED),
    "unsorted: before a branch": (
        on_condition("r = Neg (x)", before="z = Neg (y)", outputs="float[3] z"), "right: ", *SORTED),
    "unsorted: a call": (text("y = Neg (a) a = loc.f (x)", "f (a) => (b) { b = Exp (a) }"), "right: ", *SORTED),
    "unsorted: backwards": (
        text(" ".join(["y = Neg (t399)", *(f"t{n} = Neg (t{n - 1})" for n in range(399, 0, -1)), "t0 = Neg (x)"])),
        "right: ", *SORTED),
    "unsorted: in a branch": (
        on_condition("r = Neg (q) q = Exp (x)"), "wrong: ", "reason: must be topologically sorted"),
    "unsorted: in a function": (
        text("y = loc.f (x)", "f (a) => (b) { b = Neg (c) c = Exp (a) }"), "wrong: ",
        "reason: must be topologically sorted"),
    # ONNX Runtime alone refuses these.
    "refused: one of two outputs is an input": (
        text("z, y = loc.f (x)", "f (a) => (a, b) { b = Neg (a) }"), "unsupported: ", TWO),
    "refused: an input as output in a function of a function": (
        text("y = loc.g (x)", "g (a) => (c) { b = loc.f (a) c = Neg (b) }", "f (a) => (a) { }"), "unsupported: ", TWO),
    "refused: a function that nobody calls has no import": (
        text(NEG, f"{OWN} f (a) => (b) {{ b = loc.g (a) }}"), "unsupported: ", TWO),
    "refused: a recursive one that nobody calls": (
        text(NEG, "f (a) => (b) { b = loc.f (a) }"), "unsupported: ", TWO),
    # onnx 1.23 has no DequantizeLinear of version 10 and 13, and the reference of a later one.
    **{
        f"DequantizeLinear of opset {opset}": (
            text(QUANTIZED, opset=opset, constants="<float s = {0.5}, uint8 z = {3}>"), f"{ALL}2 nodes\n")
        for opset in (10, 13, 18, 19, 21)
    },
    # What onnx.reference computes wrongly is corrected.
    "LRN": (text("y = LRN <size = 5, alpha = 0.5> (x)", inputs="float[N,9,4,5] x", outputs="float[] y", opset=13),
            ALL + ONE),
    "LRN of one channel": (
        text("y = LRN <size = 3> (x)", inputs="float[N,1,4,5] x", outputs="float[] y", opset=13), ALL + ONE),
    **{
        f"GlobalMaxPool of {sizes}": (
            text("y = GlobalMaxPool (x)", inputs=f"float[N,3,{sizes}] x", outputs="float[] y", opset=13), ALL + ONE)
        for sizes in ("4", "4,5", "4,5,6")
    },
    # onnx.reference computes training up to opset 13; ONNX Runtime is right.
    **{
        f"BatchNormalization of opset {opset}": (
            text("y = BatchNormalization <epsilon = 1e-3> (x, s, b, m, v)", inputs="float[N,3,4] x",
                 outputs="float[] y", constants=MOMENTS, opset=opset), ALL + ONE)
        for opset in (7, 9, 13, 15)
    },
    # ONNX says nothing of the mask of a Dropout in inference, which is no bool before opset 10.
    "an output that nobody takes": (text("y, m = Dropout (x)", opset=9), "right: "),
    "an output that one takes": (text("y, m = Dropout (x)", outputs="float[3] y, float[3] m", opset=9), "disagree: "),
    # What is no tensor is compared.
    "a sequence": (text("y = SequenceConstruct (x, x)", outputs="seq(float[3]) y", opset=18), ALL),
    "a longer sequence": (
        text("a = SequenceConstruct (x) n = Neg (x) y = SequenceInsert (a, n)", outputs="seq(float[3]) y", opset=18),
        ALL),
    "a map of a sequence": (
        text("a = SequenceConstruct (x, x) y = SequenceMap <body = b (float[3] i) => (float[3] o) { o = Neg (i) }> (a)",
             outputs="seq(float[3]) y", opset=18), ALL),
    "an empty sequence": (text("y = SequenceEmpty ()", outputs="seq(float) y", opset=18), ALL),
    "an optional": (text("y = Optional (x)", outputs="optional(float[3]) y", opset=18), ALL),
    "an element of an optional": (text("a = Optional (x) y = OptionalGetElement (a)", opset=18), ALL),
    "whether an optional has one": (
        text("a = Optional (x) y = OptionalHasElement (a)", outputs="bool y", opset=18), ALL),
    "a random node among others": (
        text("r = RandomNormalLike (x) y = Add (x, r)", opset=18),
        "unknown: the outputs are random (RandomNormalLike (gives 'r')), so they are not compared\n"),
    # A node of an older opset is compared as that.
    **{
        f"{op_type} of opset {opset} {axis}": (
            text(f"y = {op_type} {axis} (x)", inputs="float[2,3,4] x", outputs="float[] y", opset=opset), "right: ")
        for op_type in ("Softmax", "LogSoftmax", "Hardmax")
        for opset in (7, 11, 12, 13)
        for axis in ("", "<axis = 0>", "<axis = 2>")
    },
    "RoiAlign of opset 10": (
        text("r = Constant <value = float[1,4] {0, 0, 3, 3}> () b = Constant <value = int64[1] {0}> () "
             "y = RoiAlign <output_height = 2, output_width = 2> (x, r, b)", inputs="float[1,2,5,5] x",
             outputs="float[] y", opset=10), "right: "),
    # What onnx.reference ignores is no disagreement.
    "clip of LSTM": (
        recurrent("LSTM <hidden_size = 1, clip = 0.1> (x, w, r)", 4), "unknown: ",
        "reason: onnx.reference ignores clip of LSTM"),
    "activations of LSTM": (
        recurrent('LSTM <hidden_size = 1, activations = ["Relu", "Tanh", "Tanh"]> (x, w, r)', 4), "unknown: ",
        "reason: onnx.reference ignores activations of LSTM"),
    "clip of GRU": (
        recurrent("GRU <hidden_size = 1, clip = 0.1> (x, w, r)", 3), "unknown: ",
        "reason: onnx.reference ignores clip of GRU"),
    "sequence_lens of RNN": (
        recurrent("RNN <hidden_size = 1> (x, w, r, , n)", 1), "unknown: ",
        "reason: onnx.reference ignores sequence_lens of RNN"),
    # Valid values of an input by which the model reshapes cannot be derived.
    "random inputs that it refuses": (
        text("y = Reshape (x, s)", inputs="float[N,4,L] x, int64[5] s", outputs="float[] y"), "", "wrong: They are "
        "random: give their shapes with --shape, or inputs that it can compute with: --inputs FILE"),
    "a shape that onnx infers as ONNX Runtime": (
        text(SAME_LOWER, inputs="float[1,2,5,5] x", outputs="float[?,?,?,?] y"), "disagree: ",
        "reason: onnx infers float32[1, 2, 3, 3], as ONNX Runtime: two of three agree"),
}  # fmt: skip
CYCLES = {
    "of one": (text("a = Exp (x) y = Add (a, y)"), "Add (gives 'y') gives 'y' to itself"),
    "of three behind others": (
        text("a = Exp (x) b = Add (a, d) c = Neg (b) d = Abs (c) y = Neg (a)"),
        "Add (gives 'b') gives 'b' to Neg (gives 'c') gives 'c' to Abs (gives 'd') gives 'd' to the first of these 3"),
    "in a branch": (
        on_condition("q = Neg (r) r = Abs (q)"),
        "Neg (gives 'q') gives 'q' to Abs (gives 'r') gives 'r' to the first of these 2"),
    "through a branch": (
        on_condition("r = Neg (z)", "z = Abs (y)"),
        "If (gives 'y') gives 'y' to Abs (gives 'z') gives 'z' to the first of these 2"),
    "through a function": (
        text("y = loc.f (z) z = Abs (y)", "f (a) => (b) { b = Neg (a) }"),
        "Neg (gives 'b') in loc::f (gives 'y') gives 'y' to Abs (gives 'z') gives 'z' to the first of these 2"),
}  # fmt: skip
OUTCOMES |= {
    f"a cycle {name}": (
        made, f"wrong: nodes: a cycle, which ONNX forbids: {words}. No order of these nodes runs: cut it\n")
    for name, (made, words) in CYCLES.items()
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize("row", OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcome_of_a_model(row: tuple[Any, ...], folder: Path) -> None:
    made, *said = row
    judged(made, folder).is_said(*said)


def test_a_model_may_be_a_link_next_to_its_data(folder: Path) -> None:
    """As in the cache of huggingface_hub, where the target of each link has another folder."""
    blobs, snapshot = folder / "blobs", folder / "snapshot"
    for made in (blobs, snapshot):
        made.mkdir()
    (blobs / "a").write_bytes(external("w.bin").SerializeToString())
    (folder / "w.bin").rename(blobs / "b")
    for name, target in (("model.onnx", "a"), ("w.bin", "b")):
        (snapshot / name).symlink_to(f"../blobs/{target}")
    assert judged(snapshot / "model.onnx", folder).outcome == "right"


@pytest.mark.parametrize("right", [True, False], ids=["which the reference computes", "other ones"])
@pytest.mark.parametrize("refuses", [(OrtSessions, "sessions"), (run_model, "call"), None], ids=str)
def test_expected_outputs_and_the_reference_are_two_of_three(
    refuses: Any, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RefusedError("planted") from RuntimeError("planted")

    x = np.float32([1, 2, 3])
    np.savez(tmp_path / "given.npz", x=x, y=-x if right else x)
    if refuses:
        monkeypatch.setattr(refuses[0], refuses[1], refused)
    found = judged(text(NEG), tmp_path, PartOptions(inputs=("--inputs", str(tmp_path / "given.npz"))))
    two = "But onnx.reference and given.npz agree with each other: two of three do. The model may be right"
    if refuses:
        found.is_said("unsupported: " if right else "wrong: ", f"{'' if right else 'no '}reason: {two}")
    elif right:
        found.is_said("right: ")
    else:
        found.is_said("wrong: ", "reason: two of three agree, and the expected outputs do not")
