"""Strings in test data: random and drawn ones, files, comparisons, references, and cases that prove nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import arrays, dataset, write_data
from opmatrix.data.case_arrays import case_arrays
from opmatrix.data.compare import EXACT, compare, same_bytes
from opmatrix.data.dataset import DataSet
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge import cases
from opmatrix.project.paths import Paths
from opmatrix.search import draw_models
from opmatrix.search.invalid_calls import invalid_calls
from opmatrix.spec import Case, Model, Random, Tolerance, Values
from tests.support.projects import ROOT, with_reference
from tests.support.specs import declare

PROJECT = Paths(ROOT / "tests/projects/strings")
HARD = ["a\0b", "a\0", "\0", "", "ä€😀", "x" * 300]
SPEC = declare("upper(x: string) -> y: string like x", onnx="test::Upper", summary="Strings in upper case.")
UPPER = "import numpy as np\n\n\ndef upper(x):\n    return {}\n"
RIGHT = "np.array([v.upper() for v in x.ravel()], object).reshape(x.shape)"


def text(*values: str) -> arrays.Array:
    return np.array(values, object)


def operator(*cases: Values | Random) -> Operator:
    made = tuple(Case(name=f"case_{n}", inputs={"x": tensor}) for n, tensor in enumerate(cases))
    return Operator(spec=SPEC, models=(Model(name="one", cases=made),))


def checked(root: Path, of: Operator, reference: str = RIGHT) -> None:
    paths = with_reference(root, "upper", UPPER.format(reference))
    write_data.run(paths, of)
    cases.run(paths, of)


def test_random_strings_are_short_and_of_several_bytes() -> None:
    found = arrays.array(Random(shape=(30, 20)), "string", seed_of="a/b/c")
    assert found.dtype == object and found.shape == (30, 20)
    flat = found.ravel().tolist()
    assert {len(value) for value in flat} == {*range(9)}
    assert {len(letter.encode()) for value in flat for letter in value} == {1, 2, 3, 4}
    assert arrays.array(Random(shape=(0, 3)), "string", seed_of="a").shape == (0, 3)
    assert arrays.array(Random(shape=()), "string", seed_of="a").shape == ()


def test_a_string_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(DataError, match=r"'\\ud800' is not a string of ONNX: UTF-8 cannot encode it"):
        arrays.array(Values(values=("a", "\ud800")), "string", seed_of="a")


def test_a_data_set_keeps_every_string(tmp_path: Path) -> None:
    """onnx.numpy_helper drops the NULs at the end of a string."""
    written = DataSet(inputs={"x": text(*HARD).reshape(2, 3)}, outputs={"y": text()})
    dataset.write(tmp_path / "set", written)
    found = dataset.read(tmp_path / "set")
    assert found.inputs["x"].tolist() == written.inputs["x"].tolist()
    assert found.outputs["y"].dtype == object and found.outputs["y"].shape == (0,)


def test_strings_are_compared_by_value() -> None:
    same = text(*("".join(list(value)) for value in HARD))
    assert same_bytes(same, text(*HARD)) and compare(same, text(*HARD), tolerance=EXACT).ok
    found = compare(text("a", "b"), text("a", "b\0"), tolerance=Tolerance(rtol=1.0, atol=1.0))
    assert str(found).endswith(r"worst at (1,): expected 'b\x00', got 'b'") and found.differing == 1
    assert not same_bytes(text("a"), text("b"))


@pytest.mark.parametrize(
    ("tensors", "reference", "message"),
    [
        ((Values(values=("", "")),), RIGHT, "output 'y' is an empty string everywhere in case case_0"),
        ((Values(values=("A", "B")),), RIGHT, "output 'y' equals input 'x' within rtol=0 atol=0 in case case_0"),
        ((Values(values=("a", "b")),), "np.full(x.shape, 'c', object)",
         "no case distinguishes input 'x' from empty strings and strings of one letter"),
    ],
    ids=["empty", "copy", "ignored"],
)  # fmt: skip
def test_cases_that_prove_nothing(tensors: tuple[Values, ...], reference: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        checked(tmp_path, operator(*tensors), reference)
    assert message in str(caught.value)


def test_cases_that_prove_something(tmp_path: Path) -> None:
    checked(tmp_path, operator(Values(values=("a", "B"))))


def test_every_kind_of_string_is_drawn(tmp_path: Path) -> None:
    found = load_operator(PROJECT, "join_texts")
    drawn = draw_models.collect(found, examples=200, home=tmp_path)
    given = [array for model in drawn for array in case_arrays(found.spec, model, model.cases[0])]
    flat = [value for array in given for value in array.ravel().tolist()]
    kinds = {
        "empty": any(value == "" for value in flat),
        "an embedded NUL": any("\0" in value.strip("\0") for value in flat),
        "a NUL at the end": any(value.endswith("\0") for value in flat),
        "four bytes": any("😀" in value for value in flat),
        "a combining character": any("\u0301" in value for value in flat),
        "long": any(len(value) > 400 for value in flat),
        "of a case": any("b\0c" in value for value in flat),
        "a scalar": any(array.shape == () for array in given),
        "no elements": any(array.size == 0 and array.ndim > 1 for array in given),
        "many": any(array.size > 1000 for array in given),
    }
    assert [kind for kind, there in kinds.items() if not there] == []


def test_another_dtype_in_place_of_strings_and_strings_in_place_of_numbers() -> None:
    made = load_operator(PROJECT, "fill_empty")
    found = [(str(one), one.call.inputs) for one in invalid_calls(made)]
    dtypes = [shown for shown, _ in found if shown.startswith("dtype")]
    assert dtypes == ["dtype of x: float16", "dtype of x: int32", "dtype of other: float16", "dtype of other: int32",
                      "dtype of other: string"]  # fmt: skip
    strings = next(inputs for shown, inputs in found if shown == "dtype of other: string")
    assert strings[1] is not None and not isinstance(strings[1], tuple) and strings[1].tolist() == ["1"]
