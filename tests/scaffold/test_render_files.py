"""The files of a new operator are valid, follow the style of the project, and mark what the user fills in. The kernels
of new operators, for every kind of argument, compile with the warnings of the project. Custom nodes in the functions
of a model: as they are where the function is called.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.declaration.source_files import marked_lines
from opmatrix.project.paths import Paths
from opmatrix.scaffold import onnx_process, render
from opmatrix.scaffold.draft import Draft
from opmatrix.scaffold.from_onnx import by_operator, from_nodes
from opmatrix.scaffold.from_torch_schema import from_schema
from opmatrix.scaffold.new_operator import from_aten
from opmatrix.spec import Dims, Input, as_data
from tests.support.projects import write_files
from tests.support.torch_schemas import SCHEMAS

ROOT = Path(__file__).parents[2]


def drafts() -> list[Draft]:
    return [from_schema(schema, domain="my.domain", name=f"op{n}") for n, schema in enumerate(SCHEMAS)] + [
        from_aten(
            {"torch": "2.13", "schemas": {"": "aten::sinh(Tensor self) -> Tensor"}, "runs": {"": RUNS}},
            "aten::sinh", domain="my.aten",
        ),
        from_nodes([STRINGS], shown="m.onnx"),
    ]  # fmt: skip


# Strings beside a first input of numbers.
STRINGS = {
    "name": "", "domain": "my.domain", "imported": 1, "op_type": "Decode", "attributes": {},
    "inputs": [{"name": n, "dtype": d, "shape": [3]} for n, d in (("raw", "float32"), ("format", "string"))],
    "outputs": [{"name": "pcm", "dtype": "float32", "shape": [3]}, {"name": "tag", "dtype": "string", "shape": [2]}],
}  # fmt: skip


RUNS = {"shape": [3, 4], "outputs": [{"shape": [3, 4], "dtype": "float32"}]}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    root = tmp_path_factory.mktemp("scaffold")
    for draft in drafts():
        write_files(root, render.render(draft))
    for settings in ("pyproject.toml", ".clang-format"):
        (root / settings).write_text((ROOT / settings).read_text())
    shutil.copytree(ROOT / "pipeline", root / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    return Paths(root)


@pytest.mark.parametrize("draft", drafts(), ids=lambda d: d.spec.name)
def test_the_files_declare_the_drafted_operator(paths: Paths, draft: Draft) -> None:
    operator = load_operator(paths, draft.spec.name)
    assert as_data(operator.spec) == as_data(draft.spec)
    given = {
        p: any(c.inputs.get(p) for m in operator.models for c in m.cases) for p in (i.name for i in draft.spec.inputs)
    }
    assert all(given.values()), "a case gives each input"
    assert {d for m in operator.models for d in m.types.values()} == {d for ds in draft.spec.types.values() for d in ds}


@pytest.mark.parametrize("command", [["ruff", "check", "-q", "ops"], ["mypy", "ops"]], ids=["ruff", "mypy"])
def test_python_is_valid_before_any_formatter_runs(paths: Paths, command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=paths.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lines_of_code_are_short_and_placeholders_are_marked_and_named() -> None:
    for draft in drafts():
        for path, text in render.render(draft).items():
            assert path.endswith(".md") or all(len(line) <= 120 for line in text.splitlines()), path
    for schema in SCHEMAS[:2]:
        for path, text in render.render(from_schema(schema, domain="my.domain")).items():
            assert marked_lines(text), path
            if path.endswith(("kernel.h", "reference.py", "README.md")):
                assert "placeholder" in text and "of x; other inputs are ignored." in text, path


EXAMPLES = {
    "native/every/kernel.h": (
        "y.data", "mask ? mask->data : nullptr", "others.size()", "static_cast<T>(a)", "axes.size()",
        'equal(mode, "sum")', "strict ? T(1) : T(0)", "static_cast<T>(n)",
    ),
    "ops/every/reference.py": (
        "if mask is not None", "for one in others", "x * a", "for one in axes", 'if mode == "sum"', "if strict",
        "range(n)",
    ),
}  # fmt: skip


def test_each_kind_of_argument_has_an_example() -> None:
    files = render.render(from_schema(SCHEMAS[1], domain="my.domain"))
    for path, examples in EXAMPLES.items():
        assert [said for said in examples if said not in files[path]] == []


def test_the_values_of_a_placeholder_are_those_of_its_dtype() -> None:
    draft = from_schema("my::f(Tensor x) -> (Tensor y, Tensor z, Tensor n)", domain="my.domain")
    y, z, n = draft.spec.outputs
    types = {"T": ("string",)}
    for dtype, value in (("int64", "zeros"), ("bool", "False"), ("string", "empty strings")):
        changed = replace(draft.spec, types=types, outputs=(y, z, replace(n, type=dtype)))
        expected = f"y and z are copies of x, and n is all {value}; other inputs are ignored."
        assert render.placeholder(replace(draft, spec=changed)) == expected
    strings = replace(draft.spec, types=types, outputs=(replace(y, shape=Dims(dims=("N",))),))
    assert render.placeholder(replace(draft, spec=strings)).startswith("y is all empty strings; ")
    assert 'np.full(x.shape, "", object)' in render.render(replace(draft, spec=strings))["ops/f/reference.py"]


def test_a_new_operator_asks_for_the_values_of_indices() -> None:
    draft = from_schema("my::segments(Tensor x, Tensor row_index, Tensor offsets) -> Tensor", domain="my.domain")
    text = render.render(draft)["ops/segments/spec.py"]
    assert '    # TODO: the values of row_index and offsets: values=ValueRule(index_into="N") for indices, ' in text
    whole = replace(draft.spec, inputs=(draft.spec.inputs[0], Input(name="codes", type="uint8")))
    assert "TODO: the values of codes: " in render.render(replace(draft, spec=whole))["ops/segments/spec.py"]
    plain = from_schema("my::plain(Tensor x, Tensor weight) -> Tensor", domain="my.domain")
    assert "TODO: the values" not in render.render(plain)["ops/plain/spec.py"]


def test_a_docstring_has_the_schema_as_it_is() -> None:
    schema = """my::f(Tensor x, str a='\"\"\"', str b='\"\"\"\"\"', str c='\\\\N\\\\', str d="'") -> Tensor"""
    doc = ast.get_docstring(ast.parse(render.render(from_schema(schema, domain="my.domain"))["ops/f/spec.py"]))
    assert schema in (doc or "").replace("\n", " ")


@pytest.mark.compile
def test_every_kernel_compiles(tmp_path: Path) -> None:
    lines = []
    for draft in drafts():
        name = draft.spec.name
        path = tmp_path / f"{name}.h"
        path.write_text(render.render(draft)[f"native/{name}/kernel.h"])
        lines += [f'#include "{path.name}"', f"constexpr auto use_{name} = &opmatrix::{name}::{name}<float>;"]
    (tmp_path / "all.cc").write_text("\n".join(lines))
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", f"-I{ROOT}/native/include"]
    done = subprocess.run(["g++", *flags, "all.cc"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
