"""Test vectors from elsewhere, and test data: what is read or written, and what is refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from opmatrix.basics.errors import DataError
from opmatrix.basics.step_log import LOGGED
from opmatrix.data import dataset, write_data
from opmatrix.data.case_arrays import described
from opmatrix.declaration import validation
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.models import graph_inputs
from opmatrix.plan.keys import OperatorPlan
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, FromVectors, Output, Random, SameAs, Tensor, Values, Vectors
from tests.support.double import DYNAMIC, OPERATOR, SPEC, project, with_case

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
    write_data.run(paths, operator(replace(PLAIN, name="other")))
    assert not written(paths).vectors


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
        found = write_data._array(np.load(path), "y", dtype, vectors(), narrow=False)
        assert found.dtype == dtype and np.array_equal(found.view(np.uint8), bits)
    with pytest.raises(DataError, match="'y' is uint8, declared: bfloat16"):
        write_data._array({"y": bits}, "y", "bfloat16", vectors(), narrow=False)


def test_an_input_that_the_file_lacks_may_be_given(paths: Paths) -> None:
    save(paths, y=X.astype(np.float64) * 2)  # a wider output is rounded
    write_data.run(paths, operator(case(tensor=Values(values=((1.0, 2.0, 3.0),)))))
    assert written(paths).vectors["Y"].dtype == np.float32


def flipped(paths: Paths) -> None:
    path = save(paths, x=X, y=X)
    content = bytearray(path.read_bytes())
    content[content.index(X.tobytes()) + 5] ^= 1
    path.write_bytes(content)


def folder(paths: Paths, output: bytes | None = None) -> None:
    (made := paths.op("double") / "vectors/original.npz").mkdir()
    (made / "input_0.pb").write_bytes(numpy_helper.from_array(X, "x").SerializeToString())
    if output is not None:
        (made / "output_0.pb").write_bytes(output)


def one_array(paths: Paths) -> None:
    np.save(paths.op("double") / "vectors/original.npy", X)
    (paths.op("double") / "vectors/original.npy").rename(paths.op("double") / "vectors/original.npz")


FAULTS: dict[str, tuple[Callable[[Paths], object], str]] = {
    "missing": (lambda paths: None, "vectors/original.npz is missing; it is a path below the operator's folder"),
    "flipped": (flipped, "vectors/original.npz is damaged: "),
    "pickled": (
        lambda paths: save(paths, x=X, y=np.array([{"a": 1}], object)),
        "vectors/original.npz has pickled objects, which could run code. Save plain arrays",
    ),
    "one_array": (one_array, "vectors/original.npz is damaged, or no .npz"),
    "no_output": (lambda paths: save(paths, x=X), "vectors/original.npz has no array 'y', it has: x"),
    "dtype": (lambda paths: save(paths, x=X.astype("f8"), y=X), "'x' is float64, declared: float32"),
    "narrow": (lambda paths: save(paths, x=X, y=X.astype("f2")), "'y' is float16, declared: float32"),
    "input_shape": (lambda paths: save(paths, x=X.T, y=X), "'x' has the shape (3, 1), the case has (1, 3)"),
    "no_output_in_a_folder": (folder, "vectors/original.npz/output_0.pb is missing; it is output 'y'"),
    "no_tensor": (lambda paths: folder(paths, b"\xff\xff"), "vectors/original.npz/output_0.pb is not a tensor"),
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
    assert [described(c) for c in operator(case()).models[0].cases] == [True, False]


OPERATORS = load_operators(Paths(Path(__file__).parents[2]))


def contents(paths: Paths) -> dict[str, bytes]:
    return {str(p.relative_to(paths.root)): p.read_bytes() for p in paths.root.rglob("*.pb")}


def test_a_data_set_has_the_names_of_the_graph(tmp_path: Path) -> None:
    paths = project(tmp_path)
    write_data.run(paths, OPERATOR)
    found = dataset.read(paths.data("double", "dynamic", 1))
    assert (list(found.inputs), list(found.outputs)) == (["X"], ["Y"])
    np.testing.assert_array_equal(found.outputs["Y"], [[math.nan, math.inf, -math.inf], [0, 2, 4]])
    assert found.outputs["Y"].dtype == np.float32
    assert dataset.read(paths.data("double", "dynamic", 2)).outputs["Y"].shape == (0, 5)


def test_the_files_are_those_of_the_cases(tmp_path: Path) -> None:
    """Equal cases give equal bytes, a new case leaves the others, and the files of removed ones are deleted."""
    paths, other = project(tmp_path / "a"), project(tmp_path / "b")
    write_data.run(paths, replace(OPERATOR, models=(replace(DYNAMIC, cases=DYNAMIC.cases[:2]),)))
    before = contents(paths)
    for of in (paths, other):
        write_data.run(of, OPERATOR)
    assert before.items() < contents(paths).items() == contents(other).items()
    write_data.run(paths, replace(OPERATOR, models=(DYNAMIC, replace(DYNAMIC, name="other"))))
    (paths.data("double", "dynamic", 0) / "input_7.pb").write_bytes(b"")
    write_data.run(paths, replace(OPERATOR, models=(replace(DYNAMIC, cases=DYNAMIC.cases[:1]),)))
    assert [Path(p).name for p in sorted(contents(paths))] == ["input_0.pb", "output_0.pb"]
    assert not paths.data("double", "other", 0).parent.exists()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("def other(x): ...", "ops/double/reference.py: no function named double()"),
        ("def double(x, *, factor:", "ops/double/reference.py:1: SyntaxError"),
        ("def double(x, *, factor):\n    return 1 / 0", "ops/double/reference.py:2: ZeroDivisionError: division by"),
        ("def double(x, *, factor):\n    return x, x", "ops/double/reference.py: gives 2 outputs, declared: 1"),
        ("def double(x, *, factor):\n    return x + 1j", "output 'y' is complex64, declared: float32"),
        ("def double(x, *, factor):\n    return x.sum(0)", "the reference gives 'y' the shape (3,); the shape rule"),
    ],
)
def test_a_reference_without_a_usable_output(tmp_path: Path, reference: str, message: str) -> None:
    paths = project(tmp_path, reference=reference)
    with pytest.raises(DataError) as caught:
        write_data.run(paths, with_case(Random(shape=(2, 3))))
    assert message in str(caught.value)
    assert not contents(paths)
    paths.reference("double").unlink()
    with pytest.raises(DataError, match=r"ops/double/reference.py: missing; it defines double\(\) in NumPy"):
        write_data.run(paths, OPERATOR)
    with pytest.raises(DataError, match=r"^ops/double/cases.py: case 'only': input 'x': ragged values: found"):
        write_data.run(project(tmp_path / "ragged"), with_case(Values(values=((1.0,), (1.0, 2.0)))))


def test_all_cases_are_checked_before_the_report(tmp_path: Path) -> None:
    paths = project(tmp_path, reference="def double(x, *, factor):\n    raise ValueError('no')")
    with pytest.raises(DataError) as caught:
        write_data.run(paths, OPERATOR)
    first, *others = [case.name for case in DYNAMIC.cases]
    wanted = f"ops/double/cases.py: case {first!r}: ops/double/reference.py:2: ValueError: no. Also {', '.join(others)}"
    assert str(caught.value) == wanted, "what is wrong with all of them is told once"


def test_many_mistakes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each shape is another message. A step shows two and names the other cases; its log, and a stage by hand, all."""
    paths = project(tmp_path, reference="def double(x, *, factor):\n    return x.sum(0)")
    model = replace(
        DYNAMIC, cases=tuple(Case(name=f"of_{n}", inputs={"x": Random(shape=(n, 3))}) for n in range(2, 14))
    )
    with pytest.raises(DataError) as all_of_them:
        write_data.run(paths, replace(OPERATOR, models=(model,)))
    monkeypatch.setenv(LOGGED, "1")
    with pytest.raises(DataError) as caught:
        write_data.run(paths, replace(OPERATOR, models=(model,)))
    first, second, last = str(caught.value).splitlines()
    assert first.startswith(
        "ops/double/spec.py: outputs['y'].shape: case 'of_2': the reference gives 'y' the shape (3,);"
    )
    assert str(all_of_them.value).splitlines()[:2] == [first, second]
    assert last == "double: 10 more cases are unusable: of_4, of_5, of_6, of_7, of_8, of_9, of_10, of_11, ..."
    assert "case 'of_13'" in str(all_of_them.value) and "case 'of_13'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "problem"),
    [("x > 0", ""), ("(x > 0).astype('i8')", ""), ("x", "is float32"), ("x.astype('i8') + 2**40", "is int64")],
)
def test_a_value_may_not_change_in_a_cast(tmp_path: Path, body: str, problem: str) -> None:
    spec = replace(SPEC, outputs=(Output(name="y", type="int32", shape=SameAs(input="x")),))
    paths = project(tmp_path, reference="def double(x, *, factor):\n    return x.astype('g') * factor")
    write_data.run(paths, with_case(Random(shape=(2, 3))))
    assert dataset.read(paths.data("double", "dynamic", 0)).outputs["Y"].dtype == np.float32, "a float is rounded"
    operator = Operator(spec=spec, models=with_case(Random(shape=(2, 3))).models)
    paths.reference("double").write_text(f"def double(x, *, factor):\n    return {body}")
    if problem:
        with pytest.raises(DataError, match=f"output 'y' {problem}, declared: int32"):
            write_data.run(paths, operator)
    else:
        write_data.run(paths, operator)


def test_tensors_without_a_name_or_of_one_name_are_read_in_order(tmp_path: Path) -> None:
    """Others write such data sets; reading one never ended."""
    for index, name in enumerate(["", "", "x", "x"]):
        tensor = numpy_helper.from_array(np.array([index], np.int64), name)
        (tmp_path / f"input_{index}.pb").write_bytes(tensor.SerializeToString())
        (tmp_path / f"output_{index}.pb").write_bytes(tensor.SerializeToString())
    found = dataset.read(tmp_path)
    got = [(name, int(array[0])) for name, array in found.inputs.items()]
    assert got == [("#0", 0), ("#1", 1), ("x", 2), ("#3", 3)]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    paths = project(tmp_path)
    write_data.run(paths, OPERATOR)
    folder = paths.data("double", "dynamic", 0)
    (folder / "input_0.pb").write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match=r"input_0.pb is not a tensor"):
        dataset.read(folder)
    (folder / "input_0.pb").unlink()
    with pytest.raises(DataError, match=r"input_0.pb is missing. Run: python -m opmatrix data"):
        dataset.read(folder)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_operator_has_data(operator: Operator, tmp_path: Path, root: Path) -> None:
    paths = Paths(tmp_path)
    paths.op(operator.name).mkdir(parents=True)
    paths.reference(operator.name).write_bytes(Paths(root).reference(operator.name).read_bytes())
    write_data.run(paths, operator)
    for model in operator.models:
        for index, case in enumerate(model.cases):
            found = dataset.read(paths.data(operator.name, model.name, index))
            assert list(found.inputs) == [feed.name for feed in graph_inputs(operator.spec, model, case)]
