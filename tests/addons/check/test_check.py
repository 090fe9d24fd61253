"""`doit check` on the command line, with handmade models."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opmatrix.data import dataset
from opmatrix.engine.lock import hold
from tests.addons.check.models import checked, model, norm, one, two, wrong
from tests.addons.check.outside import check
from tests.support.projects import Project, edited, write_files

pytestmark = [pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]


def test_a_model_of_several_domains_without_faults_passes(project: Project) -> None:
    """Both operators of test.customop share a domain, which a session takes from one library."""
    nodes = norm("x", "a"), one("a", "b"), two("b", "c"), "y = Relu (c)"
    code, text = checked(project, model(*nodes), "--ort", "1.18")
    assert code == 0, text
    assert "libgroup_norm_ort.so" in text and "libcustom_op_one+custom_op_two_ort.so" in text
    assert "opset 18, IR version 8: ONNX Runtime 1.18 reads them" in text
    assert "inputs chosen at random, N = 3, L = 5: x float32[3, 4, 5]; and with x float32[7, 4, 11]" in text
    assert "node by node: 4 nodes" in text
    assert text.splitlines()[-1] == "OK: 7 passed, 1 note"  # there is no environment of 1.18


def test_an_operator_that_cannot_be_used_is_a_note(project: Project) -> None:
    broken = project.paths.spec("broken")
    write_files(project.root, {"ops/broken/spec.py": "raise SystemExit"})
    try:
        code, text = checked(project, model(norm("x", "a"), "y = Relu (a)"))
    finally:
        shutil.rmtree(broken.parent)
    assert code == 0, text
    assert "the operator 'broken' is not considered, because its files cannot be used: python -m" in text


def test_a_model_that_onnx_runtime_refuses(project: Project) -> None:
    bad = model(norm("x", "a"), "y = Relu (a)")
    bad.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(4), "scale"))
    code, text = checked(project, bad)
    assert code == 1 and wrong(text) == ["types and shapes", "runs"]
    assert "node name: norm_a): scale has inconsistent type tensor(double)" in text
    assert "no kernel of mygroupnorm takes inputs of these dtypes together" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["text.onnx"], "text.onnx: no ONNX model"),
        (["model.onnx", "--inputs", "in.npz"], "'x' is float32[1, 5, 7], the model takes float32[N, 4, L]"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(
    project: Project, arguments: list[str], words: str
) -> None:
    (project.root / "text.onnx").write_text("hello")
    onnx.save(model(norm("x", "y")), project.root / "model.onnx")
    np.savez(project.root / "in.npz", x=np.zeros((1, 5, 7), np.float32))
    code, text = checked(project, *arguments)
    assert code == 2 and words in text.splitlines()[-1] and "Traceback" not in text


def test_too_much_memory_is_a_finding(project: Project) -> None:
    """A tensor of 1.2 GB, which takes longer to fill than the time between two looks at the memory."""
    nodes = """count = Constant <value_ints = [300000000]> () filled = ConstantOfShape (count)
        mean = ReduceMean <keepdims = 0> (filled) y = Add (normal, mean)"""
    with edited(project.root / "pyproject.toml", "megabytes = 8000", "megabytes = 600"):
        code, text = checked(project, model(norm("x", "normal"), nodes))
    assert code == 1 and wrong(text) == ["runs"], text
    assert "the process took more than 600 MB of memory and was stopped" in text


def test_expected_outputs_next_to_the_model_are_compared(project: Project) -> None:
    folder = project.root / "given"
    folder.mkdir()
    onnx.save(model(one("x", "y")), folder / "model.onnx")
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    dataset.write(folder / "test_data_set_0", dataset.DataSet(inputs={"x": x}, outputs={"y": x + x}))
    code, text = checked(project, "given/model.onnx")
    assert code == 0, text
    assert "with test_data_set_0: 1 output within rtol=0.0001 atol=1e-05, 0% of the limit used up" in text
    other = x + x
    other[0, 2, 1] += 0.5
    dataset.write(folder / "test_data_set_0", dataset.DataSet(inputs={"x": x}, outputs={"y": other}))
    code, text = checked(project, "given/model.onnx")
    assert code == 1 and wrong(text) == ["agrees", "first node"]
    assert "worst at (0, 2, 1): expected 14.5, got 14.0, first at (0, 2, 1)" in text
    assert "CustomOpOne 'one_y', the only one, computes what its reference does with the same numbers" in text
    assert checked(project, "given/model.onnx", "--rtol", "0.1")[0] == 0


def test_a_library_of_somebody_else_is_run_without_a_project(project: Project, tmp_path: Path) -> None:
    """Outside the project its operator is unknown, and its library one of somebody else."""
    onnx.save(model(norm("x", "a"), "y = Relu (a)"), tmp_path / "model.onnx")
    code, text = check(tmp_path, "model.onnx", "--library", str(project.paths.ort_library("group_norm")))
    assert code == 0, text
    assert "libgroup_norm_ort.so must have 1 mydomain::mygroupnorm; they are run, but not compared" in text
    assert "✓ runs" in text and "node by node: 1 node" in text and "1 node without a reference" in text


def test_check_is_refused_during_another_run_and_help_names_the_options(project: Project) -> None:
    onnx.save(model(norm("x", "y")), project.root / "model.onnx")
    with hold(project.paths.lock):
        done = project.doit("check", "model.onnx")
    assert done.returncode == 2 and "another run is at work in" in done.stderr
    done = project.passes("help", "check")
    assert "check MODEL.onnx... | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION" in " ".join(done.stdout.split())
