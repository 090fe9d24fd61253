"""Where the inputs of `doit check` come from: random numbers, data sets of others, .npz files, and chosen shapes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, SequenceProto, numpy_helper, parser

from opmatrix.addons.check.inputs import drawn_inputs, find_inputs, given_inputs
from opmatrix.basics.errors import UsageError
from opmatrix.spec import Attribute, Input, ValueRule
from tests.support.specs import declare


def model(inputs: str, nodes: str = "", constants: str = "") -> ModelProto:
    """Return a model with inputs, such as "float[N,3] x"."""
    head = '<ir_version: 8, opset_import: ["": 18, "mydomain": 1]>'
    nodes = nodes or f"y = Relu ({inputs.split()[-1]})"
    return parser.parse_model(f"{head} g ({inputs}) => (float[] y) <{constants}> {{ {nodes} }}")


def shapes(inputs: str, **given: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the shapes of the first tries."""
    tries = drawn_inputs(model(inputs), [], {name: tuple(shape) for name, shape in given.items()})
    return [[np.shape(a) for a in found.inputs.values()] for found in islice(tries, 3)]


@pytest.mark.parametrize(
    ("inputs", "given", "expected"),
    [
        ("float[N,4,L] x", {}, [[(3, 4, 5)], [(7, 4, 11)], [(5, 4, 5)]]),
        # 2 by 3 pixels are smaller than any kernel. Exporters write an open size as a name, as -1 or as nothing.
        ("float[-1,3,?,W] x", {}, [[(3, 3, 64, 32)], [(5, 3, 32, 224)], [(3, 3, 64, 64)]]),
        # As in silero-vad: the batch is the second axis of the state.
        ("float[batch,samples] x, float[2,batch,128] state", {},
         [[(3, 5), (2, 3, 128)], [(7, 11), (2, 7, 128)], [(5, 5), (2, 5, 128)]]),
        ("float[batch,samples] x, float[2,batch,128] state", {"x": (5, 7)}, [[(5, 7), (2, 5, 128)]]),
        ("float[2,3] x", {}, [[(2, 3)]]),
        ("float[N,3,?,?] x", {"x": (1, 3, 48, 192)}, [[(1, 3, 48, 192)]]),
        ("float x", {"x": ()}, [[()]]),
    ],
)  # fmt: skip
def test_open_sizes_have_several_tries(inputs: str, given: dict[str, Any], expected: list[Any]) -> None:
    assert shapes(inputs, **given) == expected


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


def test_generated_inputs_are_small_and_reported() -> None:
    inputs = "float[N,4,L] x, int64[N] i, float[1] one, float[2] c"
    made = model(inputs, "y = Mul (x, c)", "float[2] c = {1, 1}")  # an initializer needs no input
    found, again = (find_inputs(made, Path("model.onnx"), None, []) for _ in range(2))
    assert str(found) == "inputs chosen at random, N = 3, L = 5: x float32[3, 4, 5], i int64[3], one float32[1]"
    assert found.inputs["one"].tolist() == [1.0] and {*found.inputs["i"].tolist()} <= {0, 1}
    assert found.inputs["x"].tobytes() == again.inputs["x"].tobytes()


def test_generated_inputs_obey_the_rules_of_the_operators_that_take_them() -> None:
    index = Input(name="index", type="int64", dims=("M",), values=ValueRule(index_into="N", negative=True))
    rule = ValueRule(minimum=0, maximum="last", sorted="ascending", spans=True)
    offsets = Input(name="offsets", type="int64", dims=("S + 1",), values=rule)
    last = Attribute(name="last", kind="int", onnx_name="end")
    signature = "gather(table: float32[N]) -> y: float32 like index"
    spec = declare(signature, index, offsets, last, onnx="mydomain::Gather", tolerances={})
    inputs = "int64[50] i, int64[S] o, int64[50] other"

    def drawn(more: str = "", *inputs_: str, constants: str = "") -> Any:
        nodes = f"y = mydomain.Gather <end = 5> (t, i, o{more}) z = Relu (other)"
        made = model(", ".join([inputs, *inputs_]), nodes, constants)
        return find_inputs(made, Path("model.onnx"), None, [spec]).inputs

    found = drawn(constants="float[9] t = {0, 0, 0, 0, 0, 0, 0, 0, 0}")
    assert {*found["i"]} <= {*range(-9, 9)} and len({*found["i"]}) > 9
    assert found["o"].tolist() == [0, 5, 5]
    assert {*found["other"]} == {0, 1}
    assert {*drawn(", other")["other"]} == {0, 1}, "one more than declared is another finding's fault"
    assert {*drawn(", other", "float[0] t")["i"]} == {0, 1}, "no index is legal in an empty table"


X = np.float32([[1, 2, 3]])


def write(folder: Path, name: str, proto: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    "names", [("", "", ""), ("a", "b", "y"), ("some", "more", "other")]
)  # as other tools name them
def test_tensors_without_names_are_taken_in_order(names: tuple[str, str, str], tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    for index in (0, 1):
        write(folder, f"input_{index}.pb", numpy_helper.from_array(X + index, names[index]))
    write(folder, "output_0.pb", numpy_helper.from_array(X, names[2]))
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


def test_a_file_of_another_type_and_a_folder_without_a_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no input_0\.pb and no test_data_set_0 in that folder"):
        given_inputs(model("float[N,3] x"), Path("m.onnx"), tmp_path)
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / "test_data_set_0/input_0.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(UsageError, match=r"input_0\.pb: not a tensor_type of ONNX: "):
        given_inputs(model("float[N,3] x"), tmp_path / "m.onnx", None)


def test_outputs_in_a_npz_file_are_the_expected_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, y=X + 1)
    (found,) = given_inputs(model("float[N,3] x"), Path("m.onnx"), tmp_path / "in.npz")
    assert [*found.inputs] == ["x"] and found.expected["y"].tolist() == (X + 1).tolist()


def npz(**arrays: Any) -> bytes:
    np.savez(file := io.BytesIO(), **arrays)
    return file.getvalue()


WHOLE = npz(x=np.zeros((3, 4)))
DAMAGED = r"^--inputs \S+in\.npz: no \.npz file: .*\. Write one with numpy\.savez"
FILES = {
    "surplus": (npz(z=np.float32([[1] * 4])), "no input 'z', it has: x"),
    "missing": (npz(), r"nothing for the input 'x', a float32\[N, 4\]"),
    "dtype": (npz(x=np.float64([[1] * 4])), r"'x' is float64\[1, 4\], the model takes float32\[N, 4\]"),
    "size": (npz(x=np.float32([[1] * 5])), r"'x' is float32\[1, 5\], the model takes float32\[N, 4\]"),
    "rank": (npz(x=np.float32([1] * 4)), r"'x' is float32\[4\], the model takes float32\[N, 4\]"),
    # NumPy raises errors of zipfile and others of these.
    "text": (b"text", DAMAGED),
    "an array": (zipfile.ZipFile(io.BytesIO(WHOLE)).read("x.npy"), DAMAGED),
    "cut off": (WHOLE[:-9], DAMAGED),
    "another byte": (WHOLE.replace(b"descr", b"descs"), DAMAGED),
    # In the central directory: the version of the format that a reader needs.
    "a new version": (re.sub(rb"(PK\x01\x02..)..", b"\\1\xff\x00", WHOLE, flags=re.DOTALL), DAMAGED),
}


@pytest.mark.parametrize(("content", "words"), FILES.values(), ids=FILES)
def test_a_file_of_inputs_that_do_not_fit_is_refused_in_one_sentence(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        find_inputs(model("float[N,4] x"), tmp_path / "model.onnx", path, [])


def put(folder: Path, *names: str) -> Path:
    """Write X as the input or output that each name says, and return the path of a model in that folder."""
    for name in names:
        write((folder / name).parent, Path(name).name, numpy_helper.from_array(X, "y" if "output" in name else "x"))
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
