"""`opmatrix check` with sizes that a model leaves open: each has two values of 3 and more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser

from opmatrix.addons.check.sizes import Sizes, Try, differ, search
from tests.addons.check.judged import judged

pytestmark = pytest.mark.ort


EXPRESSIONS = {"N_twice": "2*N", "P_and_S": "P + S"}  # which the parser of onnx does not read


def model(text: str, **weights: Any) -> ModelProto:
    """Return a model from a text such as "float[N,4] x => float[N,4] y { y = Relu(x) }", and its weights."""
    head, _, body = text.partition("{")
    inputs, _, outputs = head.partition("=>")
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{{body}')
    for dim in (d for v in (*made.graph.input, *made.graph.output) for d in v.type.tensor_type.shape.dim):
        if dim.dim_param in EXPRESSIONS:
            dim.dim_param = EXPRESSIONS[dim.dim_param]
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items())
    return made


LINES = "float[B,S,2] x => float[?,?,?] y { y = Reshape(x, s) }"
BAKED_IN: dict[str, tuple[ModelProto, str]] = {
    "add two rows": (
        model("float[N,4] x => float[N,4] y { y = Add(x, c) }", c=np.ones((2, 4), np.float32)),
        "'N' is open, and the model runs with 1 and 2 alone"),
    "reshape to two": (
        model("float[N,4] x => float[N,4] y { y = Reshape(x, s) }", s=[2, 4]),
        "the model says that output 'y' is float32[N, 4], and Reshape (gives 'y') makes it float32[2, 4]"),
    "reshape to one": (
        model("float[N,4] x => float[N,4] y { y = Reshape(x, s) }", s=[1, 4]),
        "'N' is open, and the model runs with 1 alone: with N = 3 it fails"),
    "batch flattened into one row": (
        model("float[N,4] x => float[N,K] y { y = Reshape(x, s) }", s=[1, -1]),
        "the model says that output 'y' is float32[N, K], and with N = 3, K = 12 it is float32[1, 12]"),
    "nine without names": (
        model("float[?,?,2] x => float[?,9,2] y { y = Reshape(x, s) }", s=[-1, 9, 2]),
        "size 1 of 'x' is open, and the model runs with 3 alone: with size 1 of 'x' = 5 it fails at Reshape"),
    "five": (model(LINES, s=[-1, 5, 2]), "'S' is open, and the model runs with 5 alone: with S = "),
    "three": (model(LINES, s=[3, -1, 2]), "'B' is open, and the model runs with 3 alone: with B = "),
    "seven": (model(LINES, s=[-1, 7, 2]), "'B' is open, and the model runs with 7 alone: with B = "),
    "positions": (
        model("float[B,S,4] x => float[B,S,4] y { y = Add(x, c) }", c=np.ones((1, 16, 4), np.float32)),
        "'S' is open, and the model runs with 16 alone"),
    "expand": (
        model("float[N,4] x => float[N,4] y { y = Expand(x, s) }", s=[6, 4]),
        "'N' is open, and the model runs with 1 and 6 alone"),
    "slice": (
        model("float[N,S] x => float[N,S] y { y = Slice(x, a, b, c) }", a=[0], b=[4], c=[1]),
        "the model says that output 'y' is float32[N, S], and with N = 3, S = 5 it is float32[3, 4]"),
    "state of one": (
        model("float[S,N,4] x => float[S,?,N,3] y { y = RNN<hidden_size=3>(x, w, r, , , h) }",
              w=np.ones((1, 3, 4), np.float32), r=np.ones((1, 3, 3), np.float32), h=np.zeros((1, 1, 3), np.float32)),
        "'N' is open, and the model runs with 1 alone"),
    "an expression": (model("float[N] x => float[N] y { y = Concat<axis=0>(x, x) }"),
        "output 'y' is float32[N], and with N = 3 it is float32[6]"),
    "a batch of one said": (model("float[N,4] x => float[1,4] y { y = Relu(x) }"),
        "output 'y' is float32[1, 4], and it is float32[3, 4]"),
    "an image without its batch": (
        model("float[N,3,H,W] x => float[N,?] y { y = Reshape(x, s) }", s=[1, -1]),
        "output 'y' is float32[N, ?], and with N = 3 it is float32[1, 18432]"),
    "the sides of an image": (
        model("float[N,3,H,W] x => float[N,?] y { a = GlobalAveragePool(x) b = Add(x, c) y = Flatten(b) }",
              c=np.ones((1, 1, 224, 224), np.float32)),
        "'H' is open, and the model runs with 224 alone"),
    "the sides of channels last": (
        model("float[N,H,W,3] x => float[N,64,32,3] y { y = Resize(x, , , s) }", s=[3, 64, 32, 3]),
        "output 'y' is float32[N, 64, 32, 3], and with N = 5 it is float32[3, 64, 32, 3]"),
    "a batch of 64": (
        model("float[N,L] x => float[?,?] y { y = Reshape(x, s) }", s=[64, 5]),
        "'N' is open, and the model runs with 64 alone"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "words"), BAKED_IN.values(), ids=BAKED_IN.keys())
def test_a_size_that_is_baked_in_is_found(made: ModelProto, words: str, tmp_path: Path) -> None:
    found = judged(made, tmp_path)
    found.is_said("wrong: ", f"wrong: {words}")
    assert all("\n" not in str(one) for one in found.findings)


def weights(*shape: int) -> Any:
    return np.full(shape, 0.5, np.float32)


OPEN: dict[str, ModelProto] = {
    "rows": model("float[N,4] x => float[N,4] y { y = Relu(x) }"),
    "equal sizes": model("float[N,4] x, float[M,4] z => float[N,4] y { y = Add(x, z) }"),
    "equal sizes without names": model("float[?,4] x, float[?,4] z => float[?,4] y { y = Add(x, z) }"),
    "two of three are equal": model("float[A,B] x, float[C,D] z => float[A,D] y { y = MatMul(x, z) }"),
    "an expression": model("float[N] x => float[N_twice] y { y = Concat<axis=0>(x, x) }"),
    "a cache": model(
        "float[B,P,4] past, float[B,S,4] x, float[B,P_and_S] mask => float[B,P_and_S,4] y"
        " { a = Concat<axis=1>(past, x) b = Unsqueeze(mask, two) y = Mul(a, b) }", two=[2]),
    "names of outputs alone": model(
        "float[N,4] x => float[out_0,4] y, float[out_1] z { y = Relu(x) z = ReduceSum<keepdims=0>(x, a) }", a=[0]),
    "placeholders": model("float[None,4] x, float[None,3] z => float[None,4] y { y = Relu(x) w = Relu(z) }"),
    "multiples of 32": model(
        "float[N,3,H,W] x => float[N,3,H,W] y"
        " { a = MaxPool<kernel_shape=[32,32], strides=[32,32]>(x) b = Resize(a, , k) y = Add(x, b) }",
        k=np.float32([1, 1, 32, 32])),
    "a network for images": model(
        "float[B,H,W,1] x => float[B,2,H,W] y { t = Transpose<perm=[0,3,1,2]>(x)"
        ' p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(t) u = Resize<mode="nearest">(p, , k)'
        " y = Concat<axis=1>(t, u) }", k=np.float32([1, 1, 2, 2])),
    "channels last": model(
        "float[N,H,W,3] x => float[N,3,H,W] y { t = Transpose<perm=[0,3,1,2]>(x)"
        " a = MaxPool<kernel_shape=[8,8], strides=[8,8]>(t) b = Resize(a, , k) y = Add(t, b) }",
        k=np.float32([1, 1, 8, 8])),
    **{
        f"{channels} channels {'last' if last else 'first'} without a number": model(
            f"float[N,A,B,C] x => float[N,5,?,?] y {{ t = Transpose<perm={[0, 3, 1, 2] if last else [0, 1, 2, 3]}>(x)"
            " y = Conv(t, w) }", w=weights(5, channels, 9, 9))
        for last in (False, True)
        for channels in (1, 3, 4)
    },
    "an image without a batch": model(
        "float[3,H,W] x => float[1,5,?,?] y { a = Unsqueeze(x, zero) y = Conv(a, w) }",
        zero=[0], w=weights(5, 3, 9, 9)),
    "windows of audio": model(
        "float[N,L] x => float[N,1,?] y { a = Unsqueeze(x, one) y = Conv<strides=[256]>(a, w) }",
        one=[1], w=weights(1, 1, 512)),
    **{
        f"at most {most}": model(
            "float[N,S,4] x => float[N,S,4] y { n = Shape<start=1, end=2>(x) p = Slice(c, zero, n, one) y = Add(x, p)}",
            c=weights(1, most, 4), zero=[0], one=[1])
        for most in (8, 4)
    },
    "a square": model("float[N,A,B] x => float[N,A,B] y { t = Transpose<perm=[0,2,1]>(x) y = Add(x, t) }"),
    "features": model("float[N,D] x => float[N,2] y { y = MatMul(x, w) }", w=weights(28, 2)),
    "as many features": model("float[N,D] x => float[N,D] y { a = MatMul(x, w) y = Relu(a) }", w=weights(28, 28)),
    "features of an image": model(
        "float[N,3,H,W] x => float[N,2] y { a = Flatten(x) y = Gemm(a, w) }", w=weights(3 * 224 * 224, 2)),
}  # fmt: skip


@pytest.mark.parametrize("made", OPEN.values(), ids=OPEN.keys())
def test_a_model_of_open_sizes_is_right(made: ModelProto, tmp_path: Path) -> None:
    found = judged(made, tmp_path)
    assert found.said("wrong") == ""
    if made is OPEN["features"]:
        found.is_said("", "note: sizes: 'D' is open, and the model runs with 28 alone: with D = 5 ")


def searched(made: ModelProto, runs: Callable[[Sizes], bool]) -> tuple[list[Sizes], list[Sizes]]:
    """Return the sizes that are tried, and those with which the model runs."""
    tries: list[Try] = []
    for sizes in search(made, made.graph.input, {}, tries):
        error = "" if runs(sizes) else "it does not run"
        tries.append(Try(sizes=sizes, error=error))
    return [tried.sizes for tried in tries], [tried.sizes for tried in tries if not tried.error]


ANY = model("float[N,L] x, float[N,M] z => float[N] y { y = Relu(x) }")


@pytest.mark.parametrize(
    "runs",
    [
        lambda sizes: True,
        lambda sizes: sizes["L"] == sizes["M"],
        lambda sizes: sizes["L"] % 16 == 0,
        lambda sizes: sizes["L"] >= 512 and sizes["M"] >= 512,
        lambda sizes: max(sizes.values()) <= 5,
        lambda sizes: sizes["N"] <= 4,
        lambda sizes: sizes["N"] > 5,
        lambda sizes: sizes["N"] > 8,
    ],
)
def test_each_open_size_has_two_values_above_two(runs: Callable[[Sizes], bool]) -> None:
    tried, ran = searched(ANY, runs)
    assert any(differ(one, other) for one in ran for other in ran), ran
    assert all(min(sizes.values()) > 2 for sizes in ran)
    assert len(tried) < 40


def test_a_model_of_any_sizes_is_run_twice_and_one_that_never_runs_less_than_a_hundred_times() -> None:
    assert searched(ANY, lambda sizes: True)[0] == [{"N": 3, "L": 5, "M": 7}, {"N": 11, "L": 13, "M": 17}]
    without = model("float[2,3] x => float[2,3] y { y = Relu(x) }")
    assert searched(without, lambda sizes: True)[0] == [{}]
    assert len(searched(model("float[N,C,H,W] x => float[N] y { y = Relu(x) }"), lambda sizes: False)[0]) < 100
