"""`doit check` on the command line, with handmade models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opmatrix.engine.lock import hold
from tests.addons.check.models import checked, model, norm, one, two, wrong
from tests.support.projects import Project, edited

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
    broken.parent.mkdir()
    broken.write_text("raise SystemExit")
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
    assert code == 1
    assert wrong(text) == ["types and shapes", "runs"]
    assert "node name: norm_a): scale has inconsistent type tensor(double)" in text
    assert "no kernel of mygroupnorm takes inputs of these dtypes together" in text


def test_inputs_of_the_user(project: Project) -> None:
    np.savez(project.root / "in.npz", x=np.zeros((1, 4, 7), np.float32))
    code, text = checked(project, model(norm("x", "y")), "--inputs", "in.npz")
    assert code == 0, text
    assert "inputs from in.npz: x float32[1, 4, 7]" in text
    np.savez(project.root / "in.npz", x=np.zeros((1, 5, 7), np.float32))
    code, text = checked(project, model(norm("x", "y")), "--inputs", "in.npz")
    assert code == 2
    assert "'x' is float32[1, 5, 7], the model takes float32[N, 4, L]" in text.splitlines()[-1]


def test_generated_inputs_that_are_refused_have_a_remedy(project: Project) -> None:
    """The model reshapes by an input, whose valid values cannot be derived."""
    made = model("y = Reshape (x, s)", inputs="float[N,4,L] x, int64[5] s", output="float[] y")
    code, text = checked(project, made)
    assert code == 1
    assert "They are random: give their shapes with --shape, or inputs that it can compute with: --inputs FILE" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.onnx", "there is no file 'none.onnx'"),
        ("text.onnx", "text.onnx: no ONNX model"),
        ("empty.onnx", "empty.onnx: no ONNX model, or one without nodes and outputs"),
    ],
)
def test_a_file_that_is_no_model_is_refused_in_one_sentence(project: Project, name: str, words: str) -> None:
    (project.root / "text.onnx").write_text("hello")
    (project.root / "empty.onnx").write_text("")
    code, text = checked(project, name)
    assert code == 2
    assert words in text.splitlines()[-1]
    assert "Traceback" not in text


def test_too_much_memory_is_a_finding(project: Project) -> None:
    """A tensor of 1.2 GB, which takes longer to fill than the time between two looks at the memory."""
    nodes = """count = Constant <value_ints = [300000000]> () filled = ConstantOfShape (count)
        mean = ReduceMean <keepdims = 0> (filled) y = Add (normal, mean)"""
    with edited(project.root / "pyproject.toml", "megabytes = 8000", "megabytes = 600"):
        code, text = checked(project, model(norm("x", "normal"), nodes))
    assert code == 1 and wrong(text) == ["runs"], text
    assert "the process took more than 600 MB of memory and was stopped" in text


def test_expected_outputs_next_to_the_model_are_compared(project: Project) -> None:
    from opmatrix.data import dataset

    folder = project.root / "given"
    made = model(one("x", "y"))
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    folder.mkdir(exist_ok=True)
    onnx.save(made, folder / "model.onnx")
    dataset.write(folder / "test_data_set_0", dataset.DataSet(inputs={"x": x}, outputs={"y": x + x}))
    code, text = checked(project, "given/model.onnx")
    assert code == 0, text
    assert "with test_data_set_0: 1 output within rtol=0.0001 atol=1e-05, 0% of the limit used up" in text
    other = x + x
    other[0, 2, 1] += 0.5
    dataset.write(folder / "test_data_set_0", dataset.DataSet(inputs={"x": x}, outputs={"y": other}))
    code, text = checked(project, "given/model.onnx")
    assert code == 1
    assert wrong(text) == ["agrees", "first node"]
    assert "worst at (0, 2, 1): expected 14.5, got 14.0, first at (0, 2, 1)" in text
    assert "CustomOpOne 'one_y', the only one, computes what its reference does with the same numbers" in text
    assert checked(project, "given/model.onnx", "--rtol", "0.1")[0] == 0


def test_a_library_of_somebody_else_is_run_without_a_project(project: Project, tmp_path: Path) -> None:
    """Outside the project its operator is unknown, and its library one of somebody else."""
    onnx.save(model(norm("x", "a"), "y = Relu (a)"), tmp_path / "model.onnx")
    program = "import sys; from opmatrix.commands.main import main; sys.exit(main())"
    library = str(project.paths.ort_library("group_norm"))
    command = [sys.executable, "-c", program, "check", "model.onnx", "--library", library]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "libgroup_norm_ort.so must have 1 mydomain::mygroupnorm; they are run, but not compared" in done.stdout
    assert "✓ runs" in done.stdout and "node by node: 1 node" in done.stdout
    assert "1 node without a reference" in done.stdout


def test_check_is_refused_during_another_run(project: Project) -> None:
    onnx.save(model(norm("x", "y")), project.root / "model.onnx")
    with hold(project.paths.lock):
        done = project.doit("check", "model.onnx")
    assert done.returncode == 2
    assert "another run is at work in" in done.stderr


def test_help_names_the_options(project: Project) -> None:
    done = project.doit("help", "check")
    assert done.returncode == 0
    assert "check MODEL.onnx... | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION" in " ".join(done.stdout.split())
