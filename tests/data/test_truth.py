"""In which precision a reference is evaluated: float64 where that is possible, and the record says where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import dataset, truth, write_data
from opmatrix.data.arrays import Array
from opmatrix.data.reference import Reference
from opmatrix.data.truth import Judge, Truth
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, DType, OpSpec, Output, Random, SameAs, Values
from tests.support.double import SPEC, with_case
from tests.support.projects import with_reference

NAIVE = "return np.cumsum(x, axis=-1)"  # adds in the dtype of x, one after the other


def reference(root: Path, body: str, spec: OpSpec = SPEC) -> Reference:
    paths = with_reference(root, "double", f"import numpy as np\n\ndef double(x, *, factor):\n    {body}\n")
    return Reference(paths, spec)


def evaluate(root: Path, body: str, x: Any, dtype: DType = "float32", spec: OpSpec = SPEC) -> Truth:
    return truth.evaluate(reference(root, body, spec), spec, {"T": dtype}, (np.array(x, dtype),), {"factor": 2.0})


def drawn(count: int, dtype: DType = "float32") -> Array:
    made: Array = np.random.Generator(np.random.PCG64(0)).normal(1.0, 1.0, count).astype(dtype)
    return made


def test_a_sum_that_loses_digits_is_judged_in_float64(tmp_path: Path) -> None:
    x = drawn(20_000)
    found = evaluate(tmp_path, NAIVE, x)
    assert found.judge == Judge(precision="float64")
    assert found.outputs[0].dtype == np.float32
    np.testing.assert_array_equal(found.outputs[0], np.cumsum(x.astype(np.float64)).astype(np.float32))
    lost = np.abs(np.cumsum(x) - found.outputs[0]) / np.spacing(found.outputs[0])
    assert lost.max() > 10, "in float32 it is many units in the last place off"


def test_a_float64_operator_is_judged_in_longdouble_where_the_reference_keeps_it(tmp_path: Path) -> None:
    x = drawn(1000, "float64")
    found = evaluate(tmp_path, NAIVE, x, "float64")
    assert found.judge == Judge(precision="longdouble")
    distance = np.abs(np.cumsum(x.astype(np.longdouble)) - found.outputs[0]) / np.spacing(found.outputs[0])
    assert 0.4 < distance.max() < 0.501
    # What a search asks: by the declaration and the drawn types, without the reference.
    assert truth.declared_judge(SPEC, {"T": "float64"}) == Judge(precision="longdouble")


@pytest.mark.parametrize(
    "body",
    [
        "return (np.asarray(x, np.float64) / 3).astype(x.dtype)",  # the dtype of x, and no more digits than float64
        "return np.float64(x) / 3",
        "return np.linalg.inv(x[:, :1, None])[:, 0]",  # which raises TypeError for longdouble
    ],
)
def test_a_float64_operator_whose_reference_does_not_keep_longdouble(tmp_path: Path, body: str) -> None:
    assert evaluate(tmp_path, body, [[1.0], [3.0]], "float64").judge == Judge(precision="float64")


def test_a_sum_in_longdouble_is_not_rounded_twice(tmp_path: Path) -> None:
    """1 + (2**-53 + 2**-70) is just above the middle of two float64, and in longdouble it is the middle."""
    x = [2.0**-53 + 2.0**-70, 3.0]
    found = evaluate(tmp_path, "return x + 1", x, "float64")
    np.testing.assert_array_equal(found.outputs[0], np.array(x) + 1)
    assert found.outputs[0][0] == 1 + 2.0**-52 != np.float64(np.longdouble(x[0]) + 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_narrow_dtype_is_widened_and_rounded_back(tmp_path: Path, dtype: DType) -> None:
    spec, x = replace(SPEC, types={"T": (dtype,)}), [1.0, np.nan, np.inf, 0.0]
    found = evaluate(tmp_path, "return np.asarray(x, x.dtype) / 3", x, dtype, spec)
    assert found.judge == Judge(precision="float64")
    wanted = (np.array(x) / 3).astype(found.outputs[0].dtype)
    np.testing.assert_array_equal(found.outputs[0].astype("f8"), wanted.astype("f8"))
    with pytest.raises(DataError, match="ValueError: no"):
        evaluate(
            tmp_path / "refused",
            f"if x.dtype == '{found.outputs[0].dtype}': raise ValueError('no')\n    return x",
            x,
            dtype,
            spec,
        )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return np.float32(x) * 2", "in float64 it gives 'y' as float32"),
        ("assert x.dtype == 'f4', 'float32 alone'; return x * 2", "in float64 it raises: ops/double/reference.py:4: "),
        ("return x * (2 if x.dtype == 'f4' else 3)", "at (0,) it is 3.0, not 2.0. If it jumps there, write"),
        ("return x if x.dtype == 'f4' else x[:1]", "in float64 output 'y' has the shape (1,), not (2,)"),
        # 1 / 0.1 is 10 in float32, and below 10 for the same values in float64.
        ("return np.floor(x / np.float32(0.1))", "at (0,) it is 9.0, not 10.0"),
        ("return (x * x.dtype.type(3e38) * 1e10) / x.dtype.type(3e38)", "differs by more than rounding"),
    ],
    ids=["narrow", "raises", "asks_for_the_dtype", "shape", "jumps", "overflows"],
)
def test_what_changes_in_float64_is_judged_in_the_declared_dtype(tmp_path: Path, body: str, reason: str) -> None:
    with np.errstate(all="ignore"):
        found = evaluate(tmp_path, body, np.array([1.0, 0.3], "f4"))
        plain = reference(tmp_path / "plain", body)((np.array([1.0, 0.3], "f4"),), {"factor": 2.0})
    assert found.judge.precision == "declared dtype"
    assert reason in found.judge.reason
    np.testing.assert_array_equal(found.outputs[0], plain[0])


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_a_discrete_output_is_evaluated_in_the_declared_dtype(tmp_path: Path, dtype: DType) -> None:
    spec = replace(SPEC, outputs=(Output(name="kept", type=dtype, shape=SameAs(input="x")),))
    found = evaluate(tmp_path, "assert x.dtype == 'f4'; return x > 0", [0.5, -0.5], spec=spec)
    assert str(found.judge) == f"declared dtype: output 'kept' is {dtype}, which jumps"
    assert found.outputs[0].tolist() == [1, 0]
    declared = replace(SPEC, discontinuous="rounds down")
    found = evaluate(tmp_path / "declared", "assert x.dtype == 'f4'; return np.floor(x)", [0.3], spec=declared)
    assert str(found.judge) == "declared dtype: declared discontinuous: rounds down"


def test_the_record_says_which_precision_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models of one operator: one that is judged in float64, and one in which the reference asks for the dtype."""
    reference(tmp_path, "return x * (3 if x.dtype == 'f8' and x[0, 0] == 1 else 2)")
    cases = (
        Case(name="two", inputs={"x": Random(shape=(2, 3))}),
        Case(name="odd", inputs={"x": Values(values=((1.0,),))}),
    )
    paths, models = Paths(tmp_path), [replace(with_case(Random(shape=(1, 1))).models[0], cases=(c,)) for c in cases]
    named = tuple(replace(m, name=m.cases[0].name) for m in models)
    write_data.run(paths, Operator(spec=SPEC, models=named))
    judges = truth.read_judges(paths.data_manifest("double"))
    assert judges[paths.data("double", "two", 0)] == Judge(precision="float64")
    assert judges[paths.data("double", "odd", 0)].precision == "declared dtype"
    assert capsys.readouterr().out.startswith(
        "compared in the declared dtype: in float64 output 'y' differs by more than "
    )
    assert dataset.read(paths.data("double", "odd", 0)).outputs["Y"].tolist() == [[2.0]]
    for content in ("", "{}", '{"judged_in": {"a": {"other": 1}}}', '{"judged_in": []}'):
        paths.data_manifest("double").write_text(content)
        with pytest.raises(DataError, match=r"data.json is missing or damaged. Run: python -m opmatrix data"):
            truth.read_judges(paths.data_manifest("double"))
