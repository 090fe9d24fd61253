"""The models with which the faults of `opmatrix check` were reported, and what it prints about each.

Test data: the names are those of ../shared/cases, and the models are equal to its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, parser

H = "float[H] x) => (float[H] y)"
IMPORT = '<domain: "loc", opset_import: ["": 17]>'


@dataclass(frozen=True)
class Handed:
    """A model, the outcome and the words of its line at revision 71b51ad8, and a pattern of its line today."""

    model: ModelProto
    before: tuple[str, str]
    line: str


def model(graph: str, *functions: str, ir: int = 8) -> ModelProto:
    head = f'<ir_version: {ir}, opset_import: ["": 17, "loc": 1]> g ({graph}'
    made = parser.parse_model("\n".join([head, *functions]))
    if not functions:
        del made.opset_import[1:]
    return made


def not_utf8() -> ModelProto:
    made = model(") => (string[2] y) { y = Identity (s) }")
    made.graph.initializer.add(name="s", data_type=TensorProto.STRING, dims=[2], string_data=[b"\xff\xfe", b"a\0b"])
    return made


NODE_BY_NODE = "with onnx.reference, node by node: {}$"
FROZEN = model("float[N,4] x) => (float[N,4] y) <int64[2] s = {2,4}> { y = Reshape (x, s) }")
FROZEN_LINE = r"types and shapes: the model says that output 'y' is float32\[N, 4\], and {} \(gives 'y'\) makes it "
EXTERNAL = '<float[4] w = ["location": "../models/ext.bin", "offset": "0", "length": "16"]>'
HANDED = {
    "frozen_size_two/dim_param_batch_fixed": Handed(
        FROZEN, ("right", "with onnx.reference, node by node"), f"wrong +.*{FROZEN_LINE.format('Reshape')}"
    ),
    "frozen_size_two/frozen_reshape2": Handed(
        FROZEN, ("right", "with onnx.reference, node by node"), f"wrong +.*{FROZEN_LINE.format('Reshape')}"
    ),
    "frozen_size_two/frozen_expand": Handed(
        model("float[N,4] x) => (float[N,4] y) <float[2,4] c = {1,1,1,1,1,1,1,1}> { y = Add (x, c) }"),
        ("right", "with onnx.reference, node by node"), f"wrong +.*{FROZEN_LINE.format('Add')}",
    ),
    "channels_last_sizes/unet": Handed(
        model(
            "float[B,H,W,1] x) => (float[B,2,H,W] y) <float[4] sc = {1,1,2,2}> { t = Transpose <perm = [0,3,1,2]> (x)"
            " p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)"
            ' u = Resize <mode = "nearest"> (p, "", sc) y = Concat <axis = 1> (t, u) }'
        ),
        ("wrong", "runs: ONNX Runtime fails at Concat, with H = 3"), f"right +.*: {NODE_BY_NODE.format('4 nodes')}",
    ),
    "function_absent_attribute/r5482_default_attr": Handed(
        model(f"{H} {{ y = loc.f (x) }}",
              f"{IMPORT} f <alpha: float = 2.5> (x) => (y) {{ c = Constant <value_float: float = @alpha> ()"
              " y = Mul (x, c) }"),
        ("unknown", "the reference evaluator cannot run the model: linked attributes"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "function_absent_attribute/r_function_optional_input": Handed(
        model(f"{H} {{ y = loc.f (x) }}", f"{IMPORT} f (x, lo, hi) => (y) {{ y = Clip (x, lo, hi) }}"),
        ("unknown", "the reference evaluator cannot run the model: Mismatch lengths"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "function_absent_attribute/r_optional_attr_absent": Handed(
        model(f"{H} {{ y = loc.f (x) }}",
              f"{IMPORT} f <alpha> (x) => (y) {{ y = LeakyRelu <alpha: float = @alpha> (x) }}"),
        ("unknown", "the reference evaluator cannot read the model: no attribute 'alpha'"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "function_own_imports/fn_unused_unknown": Handed(
        model("float[N] x) => (float[N] y) { y = Neg (x) }",
              '<domain: "loc", opset_import: ["q": 1]> bad (x) => (y) { y = q.NoSuch (x) }'),
        ("wrong", "nodes: the model does not import the domain 'q'"), f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "overloads/r_overloads": Handed(
        model(f"{H} {{ a = loc.f:one (x) y = loc.f:two (a) }}",
              '<domain: "loc", overload: "one", opset_import: ["": 17]> f (x) => (y) { y = Neg (x) }',
              '<domain: "loc", overload: "two", opset_import: ["": 17]> f (x) => (y) { y = Exp (x) }', ir=10),
        ("disagree", "implementations disagree at loc::f"), f"right +.*: {NODE_BY_NODE.format('2 nodes')}",
    ),
    "string_judge_crash/r22687_value_string": Handed(
        model('float[2] x) => (string[] y) { y = loc.f <k: string = "a"> (x) }',
              f"{IMPORT} f <k> (x) => (y) {{ c = Constant <value_string: string = @k> () y = Identity (c) }}"),
        ("wrong", "first node: the process failed: could not convert string to float"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "string_not_utf8/s_cast": Handed(
        model("float[N] x) => (string[N] y) { y = Cast <to = 8> (x) }"),
        ("disagree", "implementations disagree at Cast: dtype is string, expected <U32"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
    "string_not_utf8/string_bad_utf8": Handed(
        not_utf8(), ("wrong", "runs: 'utf-8' codec can't decode byte 0xff"),
        r"unsupported +.*: ONNX Runtime \S+ computes a string that is not UTF-8, which its Python interface does not",
    ),
    "no_nodes/no_nodes": Handed(
        model("float[N] x) => (float[N] x) { }"), ("unreadable", "no ONNX model, or one without a node"),
        "right +.*: with the values of their names: 1 output$",
    ),
    "external_parent/ext_parent": Handed(
        model(f"float[4] x) => (float[4] y) {EXTERNAL} {{ y = Add (x, w) }}"),
        ("wrong", "types and shapes: onnx.checker refuses the model: '../models/ext.bin' points outside the directory"),
        r"wrong +.*: nodes: the values of 'w' are in '\.\./models/ext\.bin', outside the folder of the model, ",
    ),
    # The same file in a folder models: within this folder is what it names.
    "models/ext_parent": Handed(
        model(f"float[4] x) => (float[4] y) {EXTERNAL} {{ y = Add (x, w) }}"),
        ("wrong", "first node: the process failed: '../models/ext.bin' points outside the directory"),
        f"right +.*: {NODE_BY_NODE.format('1 node')}",
    ),
}  # fmt: skip


def write(folder: Path) -> list[str]:
    """Write the models into a folder, and return their paths in it."""
    for name, handed in HANDED.items():
        path = folder / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(handed.model.SerializeToString())
        if "ext" in path.name:
            (path.parent / "ext.bin").write_bytes(np.float32([0, 1, 2, 3]).tobytes())
    return [f"{name}.onnx" for name in HANDED]
