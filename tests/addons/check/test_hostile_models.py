"""`doit check` on malformed models: each fault is one finding or one message, in bounded time."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from opmatrix.addons.check import compare, parts, per_node
from opmatrix.addons.check.inputs import find_inputs
from opmatrix.basics import finding
from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths
from tests.addons.check.judged import judged

pytestmark = pytest.mark.ort


def model(*nodes: NodeProto, elements: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2, 4)) -> ModelProto:
    value = [helper.make_tensor_value_info(name, elements, list(shape)) for name in ("x", "y")]
    graph = helper.make_graph(nodes or [helper.make_node("Relu", ["x"], ["y"])], "graph", value[:1], value[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("evil", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def changed(change: Callable[[ModelProto], object]) -> ModelProto:
    change(made := model())
    return made


def tensor(**fields: object) -> ModelProto:
    """Return a model that adds an initializer with these fields to x."""
    made = model(helper.make_node("Add", ["x", "w"], ["y"]))
    made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1])
    for name, value in fields.items():
        setattr(made.graph.initializer[0], name, value)
    return made


def elsewhere(location: str) -> ModelProto:
    made = tensor(data_location=TensorProto.EXTERNAL)
    made.graph.initializer[0].external_data.add(key="location", value=location)
    return made


def nested(depth: int) -> bytes:
    """Return a model of If nodes in If nodes; protobuf reads 100 levels at most."""

    def field(number: int, content: bytes) -> bytes:
        size, head = len(content), b""
        while size > 127:
            head, size = head + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + head + bytes([size]) + content

    graph = field(1, field(4, b"Relu"))
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return b"\x08\x08" + field(7, graph)


WHOLE = model().SerializeToString()
NO_MODELS = {
    "empty": b"",
    "a cut": WHOLE[:-5],
    "another byte": WHOLE[:3] + b"\xff" + WHOLE[4:],
    "noise": random.Random(0).randbytes(5000),
    "deep": nested(5000),
    "no version": changed(lambda made: made.ClearField("ir_version")).SerializeToString(),
    "no graph": changed(lambda made: made.ClearField("graph")).SerializeToString(),
}


@pytest.mark.parametrize("content", NO_MODELS.values(), ids=NO_MODELS.keys())
def test_what_is_no_model_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    found = judged(content, tmp_path)
    found.is_said(f"unreadable: {tmp_path / 'model.onnx'}: no ONNX model")
    assert found.findings == [] and "\n" not in found.reason


HOSTILE: dict[str, tuple[ModelProto, str]] = {
    "opset": (changed(lambda made: setattr(made.opset_import[0], "version", 2**62)), "reads 26 at most"),
    "negative opset": (changed(lambda made: setattr(made.opset_import[0], "version", -3)), "begins at 1"),
    "no opset": (changed(lambda made: made.ClearField("opset_import")), "does not import its domain"),
    "ir version": (changed(lambda made: setattr(made, "ir_version", 2**62)), "has IR version 4611686018427387904"),
    "blank node": (model(NodeProto()), "ONNX has no such operator"),
    "blank attribute": (model(helper.make_node("Relu", ["x"], ["y"])), "inferred throughout"),
    "blank output": (changed(lambda made: made.graph.output.append(ValueInfoProto())), "onnx.checker refuses"),
    "unknown operator": (model(helper.make_node("E" * 10**6, ["x"], ["y"], domain="evil")), "neither this project"),
    "element type of a constant": (tensor(data_type=77), "Invalid tensor data type 77"),
    "element type of an input": (model(elements=99), "Invalid tensor data type 99"),
    "long path": (elsewhere("a" * 5000), "which is not next to the model"),
    "path with a null": (elsewhere("a\0b"), "which is not next to the model"),
}
HOSTILE["blank attribute"][0].graph.node[0].attribute.append(AttributeProto())


@pytest.mark.parametrize(("made", "words"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_fault_of_a_hostile_model_is_a_finding(made: ModelProto, words: str, tmp_path: Path) -> None:
    found = judged(made, tmp_path)
    assert found.outcome != "unreadable" and [f for f in found.findings if words in str(f)], found


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (model(shape=(-5, 4)), r"input 'x' has a size below 0: \[-5, 4\]"),
        (model(elements=99), "input 'x' has the element type 99, which is none of ONNX's"),
        (changed(lambda made: made.graph.input[0].ClearField("type")),
         "input 'x' is no tensor but of unknown type: what it takes cannot be drawn"),
    ],
)  # fmt: skip
def test_inputs_that_cannot_be_drawn_are_refused(made: ModelProto, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        find_inputs(made, tmp_path / "model.onnx", None, [])


def test_many_nodes_and_a_long_vector_are_read(tmp_path: Path) -> None:
    """onnx propagates values of vectors, which may be sizes: of this one it would take a terabyte."""
    names = ["x", *(f"t{n}" for n in range(2999)), "y"]
    made = model(*(helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)))
    judged(made, tmp_path).is_said("right: with onnx.reference, node by node: 3000 nodes\n")
    made = model(helper.make_node("Add", ["x", "x"], ["y"]), shape=(2**33,))
    judged(made, tmp_path).is_said("", f"ok: types and shapes: inferred throughout: y float32[{2**33}]")


def test_a_mask_in_a_file_of_its_own_is_no_fault(tmp_path: Path) -> None:
    """The check for random nodes reads the model without what is in other files."""
    made = model(helper.make_node("Where", ["mask", "x", "x"], ["y"]), shape=(64, 64))
    made.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=bool), "mask"))
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="mask.bin", size_threshold=0)
    assert judged(path, tmp_path).outcome == "right"


class Large:
    """A ModelProto of more than 2 GB, which protobuf cannot write."""

    def __init__(self) -> None:
        self._model = ModelProto()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        raise EncodeError("Failed to serialize proto")


@pytest.mark.parametrize("differs", [False, True])
def test_a_model_too_large_to_compare_is_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model().SerializeToString())
    monkeypatch.setattr(per_node, "ModelProto", Large)
    monkeypatch.setattr(per_node, "model_of", lambda *_: Large())
    given: dict[str, Any] = dict.fromkeys(("inputs", "against", "rtol", "atol"))
    given |= {"libraries": (), "shapes": (), "differs": differs, "own": False}
    compare.run(Paths(tmp_path), model=path, into=tmp_path, **given)
    (found,), known = finding.read(tmp_path / compare.PART)
    assert found.mark == "note" and "larger than the 2 GB of protobuf" in found.text
    assert parts.judge([found], known)[0] == "unknown"
