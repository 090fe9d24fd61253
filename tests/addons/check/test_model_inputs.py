"""Where the inputs of `doit check` come from: data sets that others wrote, .npz files, and chosen shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, SequenceProto, numpy_helper, parser

from opmatrix.addons.check.inputs import drawn_inputs, find_inputs, given_inputs
from opmatrix.basics.errors import UsageError


def model(inputs: str) -> ModelProto:
    """Return a model with inputs, such as "float[N,3] x"."""
    head = '<ir_version: 8, opset_import: ["": 18]>'
    return parser.parse_model(f"{head} g ({inputs}) => (float[] y) {{ y = Relu ({inputs.split()[-1]}) }}")


def shapes(inputs: str, **given: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the shapes of the first tries."""
    tries = drawn_inputs(model(inputs), [], {name: tuple(shape) for name, shape in given.items()})
    return [[np.shape(a) for a in found.inputs.values()] for found in islice(tries, 3)]


def test_open_sizes_have_several_tries() -> None:
    assert shapes("float[N,4,L] x") == [[(3, 4, 5)], [(7, 4, 11)], [(5, 4, 5)]]


def test_an_image_is_large_enough_for_kernels() -> None:
    """2 by 3 pixels are smaller than any kernel. Exporters write an open size as a name, as -1 or as nothing."""
    assert shapes("float[-1,3,?,W] x") == [[(3, 3, 64, 32)], [(5, 3, 32, 224)], [(3, 3, 64, 64)]]


def test_one_name_has_one_size() -> None:
    """As in silero-vad: the batch is the second axis of the state."""
    inputs = "float[batch,samples] x, float[2,batch,128] state"
    assert shapes(inputs)[1] == [(7, 11), (2, 7, 128)]
    assert shapes(inputs, x=(5, 7))[0] == [(5, 7), (2, 5, 128)]


def test_without_open_sizes_there_is_one_try() -> None:
    assert shapes("float[2,3] x") == [[(2, 3)]]


def test_a_given_shape_is_used() -> None:
    assert shapes("float[N,3,?,?] x", x=(1, 3, 48, 192)) == [[(1, 3, 48, 192)]]
    assert shapes("float x", x=()) == [[()]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"z": (1,)}, "--shape: the model has no input 'z', it has: x"),
        ({"x": (1, 4)}, "--shape x=1,4: the model takes float32[N, 3]"),
        ({"x": (1, 3, 1)}, "--shape x=1,3,1: the model takes float32[N, 3]"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(given: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(UsageError) as error:
        shapes("float[N,3] x", **given)
    assert words in str(error.value)


X = np.float32([[1, 2, 3]])


def write(folder: Path, name: str, proto: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(proto.SerializeToString())


def test_tensors_without_names_are_taken_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    for index in (0, 1):
        write(folder, f"input_{index}.pb", numpy_helper.from_array(X + index))
    write(folder, "output_0.pb", numpy_helper.from_array(X))
    (found,) = given_inputs(model("float[N,3] a, float[N,3] b"), tmp_path / "m.onnx", None)
    assert found.inputs["a"].tolist() == X.tolist() and found.inputs["b"].tolist() == (X + 1).tolist()
    assert found.expected["y"].tolist() == X.tolist()


def test_all_data_sets_are_read(tmp_path: Path) -> None:
    for index in (0, 1, 10, 2):
        write(tmp_path / f"test_data_set_{index}", "input_0.pb", numpy_helper.from_array(X + index, "x"))
        write(tmp_path / f"test_data_set_{index}", "output_0.pb", numpy_helper.from_array(X, "y"))
    (tmp_path / "test_data_set_old").mkdir()
    found = given_inputs(model("float[N,3] x"), tmp_path / "m.onnx", None)
    assert [f.source.rpartition("_")[2] for f in found] == ["0", "1", "2", "10"]
    (other,) = given_inputs(model("float[N,3] x"), Path("m.onnx"), tmp_path / "test_data_set_10")
    assert other.inputs["x"].tolist() == (X + 10).tolist()


def test_a_sequence_and_an_empty_optional_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    write(folder, "input_0.pb", numpy_helper.from_list([X, X + 1], "x", SequenceProto.TENSOR))
    write(folder, "input_1.pb", numpy_helper.from_optional(None, "o"))
    found = find_inputs(model("seq(float[]) x, optional(float[]) o"), tmp_path / "m.onnx", None, [])
    assert [a.tolist() for a in found.inputs["x"]] == [X.tolist(), (X + 1).tolist()]
    assert found.inputs["o"] is None
    assert str(found) == "inputs from test_data_set_0: x [float32[1, 3], float32[1, 3]], o nothing"


def test_a_file_of_another_type_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(UsageError, match=r"input_0\.pb: not a tensor_type of ONNX: "):
        given_inputs(model("float[N,3] x"), tmp_path / "m.onnx", None)


def test_a_folder_without_a_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no input_0\.pb and no test_data_set_0 in that folder"):
        given_inputs(model("float[N,3] x"), Path("m.onnx"), tmp_path)


def test_outputs_in_a_npz_file_are_the_expected_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, y=X + 1)
    (found,) = given_inputs(model("float[N,3] x"), Path("m.onnx"), tmp_path / "in.npz")
    assert [*found.inputs] == ["x"] and found.expected["y"].tolist() == (X + 1).tolist()


def test_an_input_that_is_no_tensor_cannot_be_drawn() -> None:
    made = model("float x")
    made.graph.input[0].type.Clear()
    with pytest.raises(UsageError, match="input 'x' is no tensor but of unknown type: what it takes cannot be drawn"):
        next(iter(drawn_inputs(made, [], {})))


def put(folder: Path, *names: str) -> Path:
    """Write X as the input or output that each name says, and return the path of a model in that folder."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        tensor_name = "y" if "output" in name else "x"
        (folder / name).write_bytes(numpy_helper.from_array(X, tensor_name).SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "names",
    [
        ("m_output_0.pb",),  # as those of the light models in the wheel of onnx
        ("m_input_0.pb", "m_output_0.pb"),
        ("first_input_0.pb", "second_input_0.pb"),
        ("output_0.pb",),
        ("test_data_set_0/output_0.pb",),
        ("test_data_set_0/notes.txt",),
        ("test_data_set_0/input_1.pb",),
        ("other.onnx", "test_data_set_0/input_0.pb"),
    ],
)
def test_a_folder_without_inputs_of_the_model_is_no_data_set(names: Sequence[str], tmp_path: Path) -> None:
    """At 71b51ad8 each was refused: "nothing for the input 'x'", the last one: "the model takes float32[N, 4]"."""
    path = put(tmp_path, *names)
    made = model("float[N,4] other_input" if "other.onnx" in names else "float[N,3] x")
    assert given_inputs(made, path, None) == []
    assert find_inputs(made, path, None, []).drawn


def test_a_data_set_of_the_only_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "test_data_set_0/input_0.pb", "m.onnx")
    with pytest.raises(UsageError, match=r"test_data_set_0: 'a' is float32\[1, 3\], the model takes float32\[N, 4\]"):
        given_inputs(model("float[N,4] a"), path, None)
    put(tmp_path, "other.onnx")
    assert given_inputs(model("float[N,4] a"), path, None) == []


def test_a_model_without_inputs_has_a_data_set_of_outputs(tmp_path: Path) -> None:
    path = put(tmp_path, "output_0.pb")
    made = parser.parse_model("<ir_version: 8> g () => (float[1,3] y) { y = Constant <value_float = 1.0> () }")
    (found,) = given_inputs(made, path, None)
    assert found.expected["y"].tolist() == X.tolist() and found.inputs == {}
