"""`opmatrix check` outside a project: several models, those of others, and models that end the process."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from opmatrix.addons.check import command
from opmatrix.basics.errors import ToolchainError
from tests.addons.check.outside import ENDLESS, RIGHT, check, model, started
from tests.incremental.conftest import processes, wait_for

pytestmark = pytest.mark.ort

# The remainder of the smallest integer and -1 ends the process: SIGFPE in ONNX Runtime 1.31.
CRASH = model(
    "nothing = Mul (x, zero) a = Add (nothing, least) b = Sub (nothing, one) y = Mod (a, b)",
    "int32[1] zero = {0}, int32[1] least = {-2147483648}, int32[1] one = {1}",
    inputs="int32[N,4] x", output="int32[] y",
)  # fmt: skip
CHAIN = model("a = Mul (x, w) b = LeakyRelu <alpha = 0.1> (a) c = Add (b, w) y = Tanh (c)", "float[4] w = {1, 2, 3, 4}")
MODELS = {  # with the outcome and words of its line
    "right": (CHAIN, "right", ""),
    "crash": (CRASH, "wrong", "runs: the process died of SIGFPE"),
    "random": (model("y = RandomNormalLike (x)"), "unknown", "the outputs are random (RandomNormalLike (gives 'y'))"),
    "text": (None, "unreadable", "no ONNX model"),
    "missing": (model("y = Max (x, x)", inputs="int16[N,4] x", output="int16[] y"), "unsupported",
                "does not implement Max (gives 'y'), version 13 of Max for these dtypes"),
    "mixed": (model("y = Add (x, w)", "double w = {1}"), "wrong", "at Add (gives 'y')"),
    "last": (RIGHT, "right", ""),
}  # fmt: skip


def test_each_of_several_models_has_a_line(tmp_path: Path) -> None:
    """A crash, a file that is no model and a missing kernel do not end the check of the others."""
    for name, (made, _, _) in MODELS.items():
        (tmp_path / f"{name}.onnx").write_bytes(made.SerializeToString() if made else b"hello")
    code, text = check(tmp_path, *(f"{name}.onnx" for name in MODELS))
    lines = text.splitlines()
    of_name = {line[15:].partition(".onnx: ")[0]: line for line in lines[:7]}
    assert {name: line[2:14].strip() for name, line in of_name.items()} == {n: row[1] for n, row in MODELS.items()}
    assert all(words in of_name[name] for name, (_, _, words) in MODELS.items()), text
    assert lines[7:] == [
        "7 models: 2 right, 2 wrong, 1 unknown, 1 unsupported, 1 unreadable",
        "The whole check of one: opmatrix check MODEL",
    ]
    assert code == 2, "one is no model"


def test_a_right_model_needs_no_torch_and_leaves_nothing_behind(tmp_path: Path) -> None:
    onnx.save(CHAIN, tmp_path / "m.onnx")
    code, text = check(tmp_path, "m.onnx", "--shape", "x=5,4")
    assert code == 0, text
    assert "inputs chosen at random, N = 5: x float32[5, 4]" in text
    assert "with onnx.reference, node by node: 4 nodes" in text
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_sigterm_ends_it_as_ctrl_c(tmp_path: Path) -> None:
    """While ONNX Runtime runs a loop without end. Its folder goes, too."""
    onnx.save(ENDLESS, tmp_path / "m.onnx")
    process = started(tmp_path, "m.onnx")

    try:
        folders = "opmatrix-check-*"  # a server and its step
        wait_for(lambda: any(len(processes(folder)) == 2 for folder in tmp_path.glob(folders)))
        process.terminate()
        _, errors = process.communicate()
    finally:
        process.kill()
    assert (process.returncode, errors) == (143, "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    wait_for(lambda: processes(tmp_path) == [])


def test_nodes_of_other_libraries_are_run_and_not_judged(tmp_path: Path) -> None:
    """The library here is that of no operator, so ONNX Runtime names the node."""
    onnx.save(model("y = acme.Twirl (x)"), tmp_path / "m.onnx")
    (tmp_path / "empty.so").touch()
    code, text = check(tmp_path, "m.onnx", "--library", "empty.so")
    assert code == 1
    assert "empty.so must have 1 acme::Twirl; they are run, but not compared: no reference" in text
    assert "✗ nodes" not in text and "✗ types and shapes" not in text
    assert "✗ runs" in text and "empty.so" in text.partition("✗ runs")[2]
    code, text = check(tmp_path, "m.onnx")
    assert "✗ nodes" in text


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.py").write_text("def build(): ...")
    code, text = check(tmp_path, "m.py:build")
    assert code == 2
    assert "a function is checked in a project, with its operators, and there is none in" in text
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(ToolchainError) as error:
        command._require_packages()
    install = f"not installed for {sys.executable}: onnxruntime. Install: pip install onnxruntime"
    assert str(error.value).endswith(install)
