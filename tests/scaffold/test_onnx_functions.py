"""Custom nodes in the functions of a model: as they are where the function is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from opmatrix.scaffold import onnx_process
from opmatrix.scaffold.from_onnx import by_operator, from_nodes

# Of the text of a function in `MODELS`.
LOC = '< domain: "loc", opset_import: ["my.dom" : 1] >'
HEAD = '< ir_version: 10, opset_import: ["" : 17, "my.dom" : 1, "loc" : 1] >\n'
# The first two attributes of each node, `a` and `k`; the inputs' dtypes and shapes.
# At 71b51ad8: each was a ValueError, that the attribute `k` is a reference.
MODELS: dict[str, tuple[str, list[dict[str, Any]], list[list[Any]]]] = {
    "handed": (  # a handed example of issue 33
        """g (float[N] x) => (float[N] y) { y = loc.wrap <k: int = 5> (x) }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k> (x) }""",
        [{"k": 5}], [["float32", ["N"]]],
    ),
    "default": (
        """g (float[N] x) => (float[N] y) { y = loc.wrap (x) }
        LOC wrap <k: float = 0.5>(x) => (y) { y = my.dom.InFn <k: float = @k, a = 3> (x) }""",
        [{"k": 0.5, "a": 3}], [["float32", ["N"]]],
    ),
    "absent": (
        """g (float[N] x) => (float[N] y) { y = loc.wrap (x) }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k> (x) }""",
        [{}], [["float32", ["N"]]],
    ),
    "called twice": (
        """g (float[N] x, double[2] z) => (float[N] y, double[2] w)
        { y = loc.wrap <k: int = 1> (x) w = loc.wrap <k: int = 2> (z) }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k> (x) }""",
        [{"k": 1}, {"k": 2}], [["float32", ["N"]], ["float64", [2]]],
    ),
    "through another": (
        """g (float[N] x) => (float[N] y) { y = loc.outer <n: int = 7> (x) }
        < domain: "loc", opset_import: ["loc" : 1] > outer <n>(x) => (y) { y = loc.wrap <k: int = @n> (x) }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k> (x) }""",
        [{"k": 7}], [["float32", ["N"]]],
    ),
    "in a branch": (
        """g (float[N] x, bool b) => (float[N] y)
        { y = If (b) <then_branch = t () => (float[N] p) { p = loc.wrap <k: int = 4> (x) },
                      else_branch = e () => (float[N] q) { q = Relu(x) }> }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k> (x) }""",
        [{"k": 4}], [["float32", ["N"]]],
    ),
    "an input left out": (
        """g (float[N] x) => (float[N] y) { y = loc.wrap <k: int = 6> (x) }
        LOC wrap <k>(x, z) => (y) { y = my.dom.InFn <k: int = @k> (x, z) }""",
        [{"k": 6}], [["float32", ["N"]]],
    ),
    "uncalled": (
        """g (float[N] x) => (float[N] y) { y = Relu (x) }
        LOC wrap <k>(x) => (y) { y = my.dom.InFn <k: int = @k, a = 1> (x) }""",
        [{"a": 1}], [[None, None]],
    ),
}  # fmt: skip


def described(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text.replace("LOC", LOC)), path)
    return onnx_process.describe(str(path))


@pytest.mark.parametrize("kind", MODELS)
def test_a_node_in_a_function_has_the_attributes_of_the_call(kind: str, tmp_path: Path) -> None:
    text, attributes, inputs = MODELS[kind]
    found = by_operator(described(text, tmp_path), "m.onnx")["my.dom::InFn"]
    assert [{k: v["value"] for k, v in node["attributes"].items()} for node in found] == attributes
    assert [[node["inputs"][0]["dtype"], node["inputs"][0]["shape"]] for node in found] == inputs
    spec = from_nodes(found, shown="m.onnx").spec
    assert {a.name for a in spec.attributes} == {name for one in attributes for name in one}


def test_the_version_of_the_domain_is_that_of_the_function(tmp_path: Path) -> None:
    text = """g (float[N] x) => (float[N] y) { y = loc.wrap (x) }
        < domain: "loc", opset_import: ["my.dom" : 3] > wrap (x) => (y) { y = my.dom.InFn (x) }"""
    found = by_operator(described(text, tmp_path), "m.onnx")["my.dom::InFn"]
    assert from_nodes(found, shown="m.onnx").spec.onnx.versions == (1, 3)


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    text = """g (float[N] x) => (float[N] y) { y = loc.wrap (x) }
        < domain: "loc", opset_import: ["loc" : 1] > wrap (x) => (y) { y = loc.other (x) }
        < domain: "loc", opset_import: ["loc" : 1] > other (x) => (y) { y = loc.wrap (x) }"""
    assert described(text, tmp_path) == {"error": "the function loc::wrap calls itself, which ONNX forbids"}
    text = """g (float[N] x) => (float[N] y) { y = Relu (x) }
        < domain: "loc", opset_import: ["loc" : 1, "" : 17] > wrap (x, b) => (y) {
        y = If (b) <then_branch = t () => (p) { p = loc.wrap (x, b) }, else_branch = e () => (q) { q = Relu(x) }> }"""
    assert described(text, tmp_path) == {"error": "the function loc::wrap calls itself, which ONNX forbids"}


def test_calls_that_double_in_each_function_end(tmp_path: Path) -> None:
    """A node of the innermost of 40 functions is called 2**40 times, in two ways."""
    last = '< domain: "loc", opset_import: ["my.dom" : 1] > f40 (x) => (y) { y = my.dom.InFn (x) }'
    functions = [
        f'< domain: "loc", opset_import: ["loc" : 1] > f{n} (x) => (y) {{ p = loc.f{n + 1} (x) y = loc.f{n + 1} (p) }}'
        for n in range(40)
    ]
    text = "\n".join(["g (float[N] x) => (float[N] y) { y = loc.f0 (x) }", *functions, last])
    assert len(by_operator(described(text, tmp_path), "m.onnx")["my.dom::InFn"]) == 2
