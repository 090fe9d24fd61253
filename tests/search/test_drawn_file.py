"""The file of drawn cases: it keeps every bit, equal content gives equal bytes, and reading it runs no code."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.search import drawn
from opmatrix.search.drawn import DrawnCase
from opmatrix.spec import Case, Model, Random, Values

NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
           "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")  # fmt: skip
SEVERAL = (Random(shape=()), Values(values=((1.0, True), (2, "ä\n"))), Values(values=()))


def model(tensors: int) -> Model:
    """Return a model whose case has this number of tensors."""
    inputs: dict[str, Any] = {
        "x": Random(shape=(2, 0, 3), mean=-1e-300, specials={0: math.inf, 2: -0.0, 5: 2**63 - 1}, layout="sliced"),
        "absent": None,
        "several": tuple(SEVERAL[i % 3] for i in range(tensors - 1)),
    }
    return Model(
        name="found_1",
        types={"T": "bfloat16"},
        attributes={"eps": 1e-5, "axes": (1, -2), "mode": "a\udc80", "flag": False, "scales": (0.1, -0.0)},
        cases=(Case(name="found_1", inputs=inputs),),
    )


def every_bit(dtype: Any) -> Array:
    """Return an array of a dtype with all 16 bits of float16 or bytes of others: NaN payloads and -0.0 among them."""
    if dtype == "bool":
        return np.array([[True, False]])
    return np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtype) if dtype != "float64" else np.float64).copy()


CASES = [
    DrawnCase(
        model=model(len(NUMBERS)),
        arrays=[every_bit(dtype) for dtype in NUMBERS],
        expected=None,
        refusal="too\nlarge ä",
    ),
    DrawnCase(
        model=model(3),
        arrays=[np.array([["", "ä€"], ["\n", "b"]], object), np.array("alone", object), np.zeros((3, 0), object)],
        expected=(np.array(-0.0, np.float16), np.zeros((0, 2), np.int64)),
        refusal="",
    ),
]


def bits(array: Array) -> tuple[str, tuple[int, ...], Any]:
    return str(array.dtype), array.shape, array.tolist() if array.dtype == object else array.tobytes()


def test_every_bit_comes_back(tmp_path: Path) -> None:
    drawn.write(tmp_path / "file", CASES)
    found = drawn.read(tmp_path / "file", "my_op")
    for before, after in zip(CASES, found, strict=True):
        assert (after.model, repr(after.model), after.refusal) == (before.model, repr(before.model), before.refusal)
        assert list(map(bits, after.arrays)) == list(map(bits, before.arrays))
        assert after.expected is before.expected is None or list(map(bits, after.expected or ())) == list(
            map(bits, before.expected or ())
        )
        assert all(a.flags.writeable and a.flags.aligned and a.flags.c_contiguous for a in after.arrays)


def test_equal_cases_give_equal_bytes(tmp_path: Path) -> None:
    drawn.write(tmp_path / "one", CASES)
    drawn.write(tmp_path / "two", drawn.read(tmp_path / "one", "my_op"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


class Foreign:
    """Creates a file where something unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: whole[:-1], id="cut"),
        pytest.param(lambda whole: whole + b"\0", id="longer"),
        pytest.param(lambda whole: whole.partition(b"\n")[0], id="without_arrays"),
        pytest.param(lambda whole: b"[" * 100_000 + b"\n", id="nested"),
        pytest.param(lambda whole: b"{}\n" + whole, id="another_json"),
        pytest.param(lambda whole: b'[{"arrays":[["float32",[1e300]]]}]\n', id="another_size"),
        pytest.param(lambda whole: b'[{"arrays":[["O",[9]]],"expected":null}]\n' + b"a" * 72, id="pointers"),
        pytest.param(lambda whole: whole.replace(b'"Random"', b'"Path"'), id="another_class"),
        pytest.param(lambda whole: whole.replace(b'"mean"', b'"cosy"'), id="another_field"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "file"
    drawn.write(path, CASES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"is missing or damaged\. Run: python -m opmatrix draw-inputs my_op"):
        drawn.read(path, "my_op")


def test_a_file_that_something_else_wrote_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps(Foreign(tmp_path / "ran")))
    with pytest.raises(DataError, match="damaged"):
        drawn.read(tmp_path / "file", "my_op")
    assert not (tmp_path / "ran").exists()
