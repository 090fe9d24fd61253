"""Test vectors from elsewhere: what is read, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from opmatrix.basics.errors import DataError
from opmatrix.data import dataset, write_data
from opmatrix.data import write_data as read_vectors
from opmatrix.data.case_arrays import described
from opmatrix.declaration import validation
from opmatrix.declaration.load import Operator
from opmatrix.plan.keys import OperatorPlan
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, FromVectors, Random, Tensor, Values, Vectors
from tests.support.double import DYNAMIC, SPEC, project

X = np.array([[1.0, 2.0, 3.0]], np.float32)
PLAIN = Case(name="plain", inputs={"x": Random(shape=(2, 3))})


def vectors(path: str = "vectors/original.npz", *, source: str = "paper", licence: str = "MIT") -> Vectors:
    return Vectors(path=path, source=source, licence=licence)


def case(path: str = "vectors/original.npz", tensor: Tensor | None = None) -> Case:
    return Case(name="original", inputs={"x": tensor or FromVectors(shape=(1, 3))}, expected=vectors(path))


def operator(*cases: Case) -> Operator:
    return Operator(spec=SPEC, models=(replace(DYNAMIC, cases=(PLAIN, *cases)),))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = project(tmp_path)
    (made.op("double") / "vectors").mkdir()
    return made


def save(paths: Paths, **arrays: Any) -> Path:
    path = paths.op("double") / "vectors/original.npz"
    np.savez(path, **arrays)
    return path


def written(paths: Paths) -> dataset.DataSet:
    return dataset.read(paths.data("double", "dynamic", 1))


def test_inputs_and_outputs_come_from_the_file(paths: Paths) -> None:
    save(paths, x=X, y=X * 3)
    write_data.run(paths, operator(case()))
    found = written(paths)
    np.testing.assert_array_equal(found.inputs["X"], X)
    np.testing.assert_array_equal(found.outputs["Y"], X * 2)  # those of the reference, which then disagrees
    np.testing.assert_array_equal(found.vectors["Y"], X * 3)


def test_a_folder_of_onnx_test_data(paths: Paths) -> None:
    """Whatever the tensors are named there: input_0.pb is the first that the case takes from the file."""
    folder = paths.op("double") / "vectors/test_data_set_0"
    folder.mkdir()
    for name, array in (("input_0", X), ("output_0", X * 2)):
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(array, "theirs").SerializeToString())
    write_data.run(paths, operator(case("vectors/test_data_set_0")))
    np.testing.assert_array_equal(written(paths).vectors["Y"], X * 2)


def test_float8_comes_as_its_bits(paths: Paths) -> None:
    """numpy.load reads no float8_e5m2 that numpy.savez wrote, and the others as V1."""
    bits = np.array([0, 60, 255], np.uint8)
    for dtype, stored in (("float8_e5m2", bits), ("float8_e4m3fn", bits.view("V1")), ("float8_e4m3fn", bits)):
        path = save(paths, y=stored)
        found = read_vectors._array(np.load(path), "y", dtype, vectors(), narrow=False)
        assert found.dtype == dtype and np.array_equal(found.view(np.uint8), bits)
    with pytest.raises(DataError, match="'y' is uint8, declared: bfloat16"):
        read_vectors._array({"y": bits}, "y", "bfloat16", vectors(), narrow=False)


def test_an_input_that_the_file_lacks_may_be_given(paths: Paths) -> None:
    save(paths, y=X.astype(np.float64) * 2)  # a wider output is rounded
    write_data.run(paths, operator(case(tensor=Values(values=((1.0, 2.0, 3.0),)))))
    assert written(paths).vectors["Y"].dtype == np.float32


def test_a_case_without_vectors_loses_the_former_ones(paths: Paths) -> None:
    save(paths, x=X, y=X)
    write_data.run(paths, operator(case()))
    write_data.run(paths, operator(replace(PLAIN, name="other")))
    assert not written(paths).vectors


def nothing(paths: Paths) -> None:
    pass


def flipped(paths: Paths) -> None:
    path = save(paths, x=X, y=X)
    content = bytearray(path.read_bytes())
    content[content.index(X.tobytes()) + 5] ^= 1
    path.write_bytes(content)


def pickled(paths: Paths) -> None:
    save(paths, x=X, y=np.array([{"a": 1}], object))


def one_array(paths: Paths) -> None:
    np.save(paths.op("double") / "vectors/original.npy", X)
    (paths.op("double") / "vectors/original.npy").rename(paths.op("double") / "vectors/original.npz")


FAULTS: dict[str, tuple[Callable[[Paths], object], str]] = {
    "missing": (nothing, "vectors/original.npz is missing; it is a path below the operator's folder"),
    "flipped": (flipped, "vectors/original.npz is damaged: "),
    "pickled": (pickled, "vectors/original.npz has pickled objects, which could run code. Save plain arrays"),
    "one_array": (one_array, "vectors/original.npz is damaged, or no .npz"),
    "no_output": (lambda paths: save(paths, x=X), "vectors/original.npz has no array 'y', it has: x"),
    "dtype": (lambda paths: save(paths, x=X.astype("f8"), y=X), "'x' is float64, declared: float32"),
    "narrow": (lambda paths: save(paths, x=X, y=X.astype("f2")), "'y' is float16, declared: float32"),
    "input_shape": (lambda paths: save(paths, x=X.T, y=X), "'x' has the shape (3, 1), the case has (1, 3)"),
    "output_shape": (lambda paths: save(paths, x=X, y=X.T), "the shape (1, 3), the vectors (paper) have (3, 1)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unusable_file_is_one_sentence(paths: Paths, fault: str) -> None:
    plant, message = FAULTS[fault]
    plant(paths)
    with pytest.raises(DataError) as caught:
        write_data.run(paths, operator(case()))
    assert str(caught.value).startswith("ops/double/cases.py: case 'original': ")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "vectors/set/output_0.pb is missing; it is output 'y'"),
        (b"\xff\xff", "vectors/set/output_0.pb is not a tensor"),
    ],
)
def test_an_unusable_folder_is_one_sentence(paths: Paths, content: bytes | None, message: str) -> None:
    folder = paths.op("double") / "vectors/set"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(X, "x").SerializeToString())
    if content is not None:
        (folder / "output_0.pb").write_bytes(content)
    with pytest.raises(DataError, match=message):
        write_data.run(paths, operator(case("vectors/set")))


def mistakes(*cases: Case) -> Sequence[str]:
    return [f"{m.field}: {m.text}" for m in validation.cases(SPEC, operator(*cases).models)]


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../../b.npz", "", "./a.npz", "a\\b.npz"])
def test_a_path_outside_of_the_operators_folder_is_refused(path: str) -> None:
    (found,) = mistakes(case(path))
    assert f"found {path!r}, allowed: a path below the operator's folder, such as 'vectors/original.npz'" in found


def test_inputs_that_do_not_fit_are_mistakes() -> None:
    (drawn,) = mistakes(case(tensor=Random(shape=(1, 3))))
    assert "found Random in a case with `expected`, allowed: FromVectors or Values" in drawn
    (lost,) = mistakes(replace(case(), expected=None))
    assert "found FromVectors, and the case has no file: give `expected`" in lost
    first = replace(DYNAMIC, cases=(replace(case(), inputs={"x": FromVectors(shape=(2, 3))}),))
    (traced,) = [m.text for m in validation.cases(SPEC, (first,))]
    assert "found FromVectors in the first case, which the exporters trace without a file" in traced


def test_the_file_is_an_input_of_the_step(paths: Paths) -> None:
    path = save(paths, x=X, y=X)
    (paths.op("double") / "vectors/set").mkdir()
    tensor = paths.op("double") / "vectors/set/input_0.pb"
    tensor.write_bytes(b"")
    cases = (case(), replace(case("vectors/set"), name="set"), replace(case("gone.npz"), name="gone"))
    plan: Any = type("PlanOf", (), {"paths": paths})
    found = OperatorPlan(plan, operator(*cases))
    assert found.vectors == (path, tensor)
    outputs = [file.name for file in found.data_files if file.parent.name == "test_data_set_1"]
    assert outputs == ["input_0.pb", "output_0.pb", "vectors_0.pb"]


def test_what_needs_no_file_is_known_by_the_declaration() -> None:
    assert [described(c) for c in operator(case()).models[0].cases] == [True, False]
