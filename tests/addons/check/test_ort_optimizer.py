"""`doit check` blames no model for an optimizer of ONNX Runtime, and names the optimizer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

from opmatrix.addons.check import run as check_run
from opmatrix.addons.check.parts import PartOptions
from opmatrix.addons.check.run import OPTIMIZERS
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError
from tests.addons.check.judged import judged

pytestmark = pytest.mark.ort


def model(text: str, opset: int = 19, **constants: Any) -> ModelProto:
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["":{opset}]> g {text}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items())
    return made


ONE, UINT8 = np.float32(1), np.uint8(128)
MUL = "(float[2,3] x) => (float[2,3] y) { m = %s(x) o = Div(a, b) y = Mul(m, o) }"
PAIRS = " a = QuantizeLinear(x, s, zp) b = DequantizeLinear(a, s, zp) c = QuantizeLinear(b, t, %s)"
# Of issues of ONNX Runtime, here found in 1.31.1: model, level, one of these names, and what is wrong. That of 24158,
# FuseReluClip, is in tests/faults/check_models.toml.
REAL = {
    "32416": (model(MUL % "Cast<to = 1>", a=ONE, b=ONE), "basic", {"CastElimination", "DivMulFusion"},
              "Node input 'm'"),
    "32413": (model(MUL % "Identity", a=ONE, b=ONE), "basic", {"EliminateIdentity", "DivMulFusion"}, "Node input 'm'"),
    "32414": (model(MUL % "Dropout", a=ONE, b=ONE), "basic", {"EliminateDropout", "DivMulFusion"}, "Node input 'm'"),
    "25259, one pair": (
        model("(float[8,9] x) => (float[8,9] y) {" + PAIRS % "zp" + " y = DequantizeLinear(c, t, zp) }",
              s=np.float32(0.0131), t=np.float32(0.0213), zp=UINT8),
        "basic", {"DoubleQDQPairsRemover"}, "elements differ"),
    "25259, two zero points": (
        model("(float[8,9] x) => (float[8,9] y) {" + PAIRS % "zq" + " d = DequantizeLinear(c, t, zq)"
              " e = QuantizeLinear(d, s, zp) y = DequantizeLinear(e, s, zp) }",
              s=np.float32(0.0131), t=np.float32(0.0213), zp=UINT8, zq=np.uint8(10)),
        "basic", {"DoubleQDQPairsRemover"}, "elements differ"),
    "weights of 8 bits": (
        model("(float[4,8] x) => (float[4,8] y) { w = DequantizeLinear<axis = 1>(q, s, zp) y = MatMul(x, w) }",
              q=np.arange(-32, 32, dtype=np.int8).reshape(8, 8), s=np.linspace(0.5, 2, 8, dtype=np.float32),
              zp=np.zeros(8, np.int8)),
        "extended", {"QDQSelectorActionTransformer"}, "32 of 32 elements differ"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "level", "names", "words"), REAL.values(), ids=REAL)
def test_an_optimizer_that_breaks_a_model_is_named(
    made: ModelProto, level: str, names: set[str], words: str, tmp_path: Path
) -> None:
    found = judged(made, tmp_path)
    (fault,) = found.said("wrong").splitlines()
    name = re.match(r"optimizer: ONNX Runtime \S+ breaks the model by its optimizer (\w+) \(level (\w+)\): ", fault)
    assert name and name[1] in names and name[2] == level and words in fault, fault
    remedy = f"The model may be right: run it with disabled_optimizers=['{name[1]}'], and report it"
    found.is_said("unsupported: ", f"wrong: {remedy}")
    nodes = len(made.graph.node)
    assert found.reason.endswith(f"As it is, it agrees with onnx.reference, node by node: {nodes} nodes"), found.reason


PLAIN = "(float[N,4] x) => (float[N,4] y) { a = Exp(x) y = Neg(a) }"
LEVELS = [(name, level) for level, names in OPTIMIZERS.items() for name in names]


def plant(monkeypatch: pytest.MonkeyPatch, *names: str, how: str = "", run: Any = None) -> None:
    """Let optimised sessions be broken unless all of these optimizers are off; `run`: what they do instead."""
    make = OrtSessions._session

    def computes(made: Any, *given: Any) -> Any:
        if how == "fails":
            raise RuntimeError("planted")
        return [value + np.float32(0.5) for value in made.run(*given)]

    def broken(self: OrtSessions, content: Any, options: Any, without: Any) -> Any:
        made: Any = make(self, content, options, without)
        plain = options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if plain or (names and {*names} <= {*without}):
            return made
        if how == "refuses":
            raise RuntimeError("planted")
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return SimpleNamespace(get_outputs=made.get_outputs, run=partial(run or computes, made))

    monkeypatch.setattr(OrtSessions, "_session", broken)


@pytest.mark.parametrize(
    ("names", "how", "said"),
    [
        *(
            ((name,), how, f"by its optimizer {name} (level {level}): ")
            for how in ("refuses", "fails", "computes others")
            for name, level in LEVELS[:: len(LEVELS) // 4]
        ),
        (("ConstantFolding", "NchwcTransformer"), "computes others",
         "by its optimizer ConstantFolding (level basic) and NchwcTransformer (level layout): "),
        (("OfTheFuture",), "refuses", "breaks the model when it optimises: it refuses the optimised graph: planted"),
        (("OfTheFuture",), "refuses",
         "run it with graph_optimization_level=ORT_DISABLE_ALL, and report it to ONNX Runtime"),
        (("ConstantFolding",), "dies", "by its optimizer ConstantFolding (level basic): the process died of SIGABRT"),
    ],
)  # fmt: skip
def test_a_planted_optimizer_is_named(
    names: tuple[str, ...], how: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it ends the process, the part runs again without the optimised graph: test_check_run.py."""
    plant(monkeypatch, *names, how=how)
    if how == "dies":
        again = partial(check_run.run, died="the process died of SIGABRT")
        monkeypatch.setattr(check_run, "run", lambda *given, died, **more: again(*given, **more))
    judged(model(PLAIN), tmp_path).is_said("unsupported: ", f"reason: {said}")


@pytest.mark.parametrize("right", [True, False], ids=["of a right model", "of a wrong one"])
def test_an_optimizer_with_expected_outputs(right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.float32([[1, 2, 3, 4]])
    np.savez(tmp_path / "given.npz", x=x, y=-np.exp(x) if right else x)
    plant(monkeypatch, "ConstantFolding", how="computes others")
    judged(model(PLAIN), tmp_path, PartOptions(inputs=("--inputs", str(tmp_path / "given.npz")))).is_said(
        "unsupported: " if right else "wrong: ", f"{'' if right else 'no '}ok: with given.npz, not optimised: 1 output"
    )


def test_a_graph_that_is_refused_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ONNX Runtime 1.27 does with Casts from float16 to float16 (its issue 29235)."""
    make, content = OrtSessions.sessions, model(PLAIN).SerializeToString()

    def refuses(self: OrtSessions, made: Any, **more: Any) -> Any:
        if more.get("settings") == ["not optimised"] and isinstance(made, str):
            raise RefusedError("planted") from RuntimeError("planted")
        return make(self, made, **more)

    (tmp_path / "model.onnx").write_bytes(content)
    monkeypatch.setattr(OrtSessions, "sessions", refuses)
    judged(tmp_path / "model.onnx", tmp_path).is_said("right: ", "ok: It refuses the graph as it is: planted")


CHAOS = "(float[4] x) => (float[4] y) { a = Mul(x, k) b = Sin(a) c = Mul(b, k) d = Sin(c) y = Mul(d, k) }"


@pytest.mark.parametrize("factor", [1, 1 + 1e-6])
def test_what_other_last_bits_of_the_inputs_change_is_no_fault(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(made: Any, names: Any, given: Any) -> Any:
        return made.run(names, {name: value * np.float32(factor) for name, value in given.items()})

    plant(monkeypatch, run=run)
    found = judged(model(CHAOS, k=np.float32(1000)), tmp_path)
    assert not found.said("wrong"), found
    assert ("Other last bits of the inputs change the outputs as much" in found.said("note")) == (factor != 1)


LOG = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level, options.log_verbosity_level = 0, 1
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, sys.argv[2])
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
REQUIRED = {  # which run at each level
    "CastFloat16Transformer", "MemcpyTransformer", "RemoveDuplicateCastTransformer",
    "Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer",
}  # fmt: skip


def test_the_names_are_those_of_this_onnx_runtime(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model(PLAIN).SerializeToString())
    known: set[str] = set()
    for level, names in OPTIMIZERS.items():
        words = [sys.executable, "-c", LOG, str(tmp_path / "m.onnx"), f"ORT_ENABLE_{level.upper()}"]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stderr
        logged = {*re.findall(r"GraphTransformer (\w+) modified", text)}
        known |= {*names}
        assert logged - REQUIRED - known == set(), level
        assert logged, text[:500]
    library = Path(check_run.onnxruntime.capi.onnxruntime_pybind11_state.__file__).read_bytes()
    lacking = {name for name in known if name.removesuffix("_CPUExecutionProvider").encode() not in library}
    assert lacking <= {"GeluFusionL1", "GeluFusionL2", "LayerNormFusionL1", "LayerNormFusionL2"}  # made of two texts
