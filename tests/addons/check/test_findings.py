"""The findings of `doit check` for types and versions, its options, and its output."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, defs, numpy_helper, parser

from opmatrix.addons.check import parts
from opmatrix.addons.check.arguments import parse
from opmatrix.addons.check.graph_walk import format_range
from opmatrix.addons.check.inputs import tolerances
from opmatrix.addons.check.print_findings import FindingPrinter
from opmatrix.addons.check.read import version_findings
from opmatrix.addons.check.shapes import checker_findings, inference_findings, schemas
from opmatrix.basics import finding
from opmatrix.basics.errors import UsageError
from opmatrix.basics.finding import Finding
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths

RELU = "[relu] y = Relu (x)"
GROUP_NORM = "[norm] y = mydomain.mygroupnorm (x, n, s, b)"


def model(
    nodes: str = RELU, *, inputs: str = "float[N,4] x", output: str = "float[N,4] y", constants: str = ""
) -> ModelProto:
    imports = '"": 18, "mydomain": 1, "other": 1'
    head = f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({output}) <{constants}>"
    return parser.parse_model(f"{head} {{ {nodes} }}")


LOSES = defs.OpSchema(
    "Loses", "other", 1, inputs=[defs.OpSchema.FormalParameter("x", "T")],
    outputs=[defs.OpSchema.FormalParameter("y", "T")], type_constraints=[("T", ["tensor(float)"], "")],
)  # fmt: skip
LOST = model("a = Relu (x) [lost] b = other.Unknown (a) c = Relu (b) y = Relu (c)")
DTYPE = "the dtype of 'b' is lost at other::Unknown 'lost', and so of 2 values behind it"
NO_SHAPES = model(
    f"{GROUP_NORM} z = Relu (y)", inputs="float[] x, float[1] n, float[4] s, float[4] b", output="float[] y"
)
UNTOLD = "onnx cannot tell it, ONNX Runtime may"
CAUSE = "the model gives no shape for an input of mydomain::mygroupnorm 'norm' or of a node before it"
MAKES = "the model says that output 'y' is {}, and Relu 'relu' makes it float32[N, 4]"


@pytest.mark.parametrize(
    ("made", "more", "mark", "text"),
    [
        (model(), {}, "ok", "inferred throughout: y float32[N, 4]"),
        (LOST, {}, "wrong", DTYPE),
        (LOST, {"builtin": {("other", "Unknown")}}, "note", f"{DTYPE}: {UNTOLD}"),
        (model("[again] a = Reshape (x, shape) y = Relu (a)", inputs="float[N,4] x, int64[K] shape"), {}, "note",
         f"the rank of 'a' is lost at Reshape 'again', and so of 1 value behind it: {UNTOLD}"),
        (model("[it] y = other.Loses (x)"), {}, "wrong", "the rank of 'y' is lost at other::Loses 'it'"),
        (NO_SHAPES, {}, "note", f"the rank of 'y' is unknown, because {CAUSE}"),
        (model(output="double[N,4] y"), {}, "wrong", MAKES.format("float64[N, 4]")),
        (model(output="float[N,5] y"), {}, "wrong", MAKES.format("float32[N, 5]")),
        (model(output="float[N,4,1] y"), {}, "wrong", MAKES.format("float32[N, 4, 1]")),
    ],
    ids=["inferred", "a dtype", "a dtype of ONNX Runtime's", "a rank", "a rank of a declaration", "no shapes", "dtype",
         "size", "rank"],
)  # fmt: skip
def test_the_first_node_that_loses_a_type_or_makes_another_one_is_named(
    made: ModelProto, more: dict[str, Any], mark: str, text: str, root: Path
) -> None:
    known = [*schemas([load_operator(Paths(root), "group_norm").spec], {"mydomain": 1}), LOSES]
    assert [(f.mark, f.text) for f in inference_findings(made, known, **more)] == [(mark, text)]


@pytest.mark.parametrize("custom", [False, True])
def test_a_shape_rule_is_named_where_the_project_has_one(root: Path, custom: bool) -> None:
    constants = "float[1] n = {2}, float[4] s = {1, 1, 1, 1}, float[4] b = {1, 1, 1, 1}"
    made = model(GROUP_NORM if custom else RELU, constants=constants, output="float[N,5] y")
    (found,) = inference_findings(made, schemas([load_operator(Paths(root), "group_norm").spec], {"mydomain": 1}))
    rule = "fix the shape rule in ops/*/spec.py that is wrong, or " if custom else ""
    assert found.remedy == f"The nodes compute another type than the exporter wrote: {rule}export it again"


def test_the_checker_finds_what_inference_ignores(tmp_path: Path) -> None:
    assert not list(checker_findings(model(), None, ()))
    (found,) = checker_findings(model(f"{RELU} {RELU}"), None, ())
    assert found.mark == "wrong" and "onnx.checker refuses the model" in found.text
    (found,) = checker_findings(NO_SHAPES, None, ())
    assert found.mark == "note" and found.text.endswith("'x', 'y' have no shape; ONNX Runtime reads such a model")
    made, path = model("y = Mul (x, c)"), tmp_path / "big.onnx"
    made.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "c"))
    onnx.save(made, path, save_as_external_data=True, location="big.data", size_threshold=0)
    read = onnx.load_model(path, load_external_data=False)
    assert not list(checker_findings(read, path, ())), "it finds external data next to the model"
    (tmp_path / "big.data").unlink()
    assert "big.data" in next(iter(checker_findings(read, path, ()))).text


@pytest.mark.parametrize(
    ("ir", "opset", "ort", "marks", "words"),
    [
        (8, 18, "1.18", [], ""),
        (10, 21, "1.18.1", [], ""),
        (11, 18, "1.18", ["wrong"], "IR version 11, and ONNX Runtime 1.18 reads 10 at most. Export at a lower opset"),
        (13, 25, "1.16", ["wrong", "wrong"], "opset 25, and ONNX Runtime 1.16 reads 19 at most"),
        (10, 21, "1.20", [], ""),
        (10, 22, "1.20", ["note"], "whether ONNX Runtime 1.20 reads opset 22 was never measured: 1.18 reads 21 at "
         "most, 1.21 22"),
        (10, 23, "1.20", ["wrong"], "and ONNX Runtime 1.21 reads 22 at most"),
        (13, 29, "1.99", ["note"], "1.32 reads 28 at most, and nothing newer is known"),
    ],
)  # fmt: skip
def test_the_table_decides_what_an_onnx_runtime_reads(
    ir: int, opset: int, ort: str, marks: list[str], words: str
) -> None:
    found = list(version_findings(ir, opset, ort=ort))
    assert [f.mark for f in found] == marks
    assert words in " ".join(map(str, found))


@pytest.mark.parametrize(("ort", "words"), [("new", "no version"), ("1.15", "versions before 1.16 are not supported")])
def test_an_unknown_version_is_refused(ort: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(version_findings(8, 18, ort=ort))


def test_a_range_counts_nan_and_infinities_and_tolerances_have_defaults() -> None:
    assert format_range(np.float32([[1, -2], [np.nan, np.inf]])) == "float32[2, 2] in -2 to 1 and 2 NaN or infinite"
    assert format_range(np.zeros((0, 3), np.int64)) == "int64[0, 3]"
    assert tolerances(None, None)["float64"].rtol == 1e-9
    assert {(t.rtol, t.atol) for t in tolerances(0.5, 0.25).values()} == {(0.5, 0.25)}


DEFAULTS: dict[str, Any] = {
    "ort": "", "inputs": "", "shape": [], "library": [], "against": "", "seconds": "", "megabytes": "",
    "exporter": "both", "opset": 18, "rtol": "", "atol": ""
}  # fmt: skip


def test_a_file_and_a_function_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "m.py").touch()
    names = "a.onnx", "m.py:build", "package.m:build"
    found = [parse(name, DEFAULTS, tmp_path, torch=lambda: "2.13") for name in names]
    assert [one.function for one in found] == [False, True, True] and found[1].label != found[2].label
    assert found[1].exporters == ("legacy", "dynamo")
    older = parse("m:build", DEFAULTS | {"opset": 12}, Path(), torch=lambda: "2.13")
    assert older.exporters == ("legacy",)
    assert older.left_out == ("the dynamo exporter of torch 2.13 writes opsets 18 to 25, not 12",)


SUCH = "write an .onnx file, module:function, or path/to/file.py:function"


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        ("b.onnx", {}, f"there is no file 'b.onnx'; {SUCH}; did you mean 'a.onnx'?"),
        ("a" * 300, {}, "File name too long"),
        ("a.onnx", {"inputs": "a" * 300}, "File name too long"),
        ("lost.onnx", {}, "'lost.onnx' is a link to 'elsewhere.onnx', where there is no file"),
        (".", {}, f"is a folder; {SUCH}"),
        ("m.py", {}, "name a function in it that builds one, such as m.py:build"),
        ("n.py:build", {}, "there is no file 'n.py', so no function 'build' in it"),
        ("m.py:", {}, "is no model"),
        ("m.py:build", {"inputs": "x.npz"},
         "--inputs is for an .onnx file; build() gives the inputs of its model itself"),
        ("m.py:build", {"opset": 3},
         "--opset 3: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 3; the dynamo"),
        ("m.py:build", {"opset": 12, "exporter": "dynamo"},
         "--opset 12: the dynamo exporter of torch 2.13 writes opsets 18 to 25"),
        ("m.py:build", {"exporter": "new"}, "--exporter new: allowed: legacy, dynamo, both"),
        ("a.onnx", {"rtol": "-1"}, "--rtol -1: write a number that is not negative"),
        ("a.onnx", {"atol": "much"}, "--atol much: write a number"),
        ("a.onnx", {"shape": ["x"]},
         "--shape x: write the name of an input and its sizes, such as --shape x=1,3,48,192"),
        ("a.onnx", {"shape": ["x=2,-1"]}, "--shape x=2,-1: write the name of an input and its sizes"),
        ("a.onnx", {"shape": ["x=1", "x=2"]}, "--shape x=2: the input 'x' has a shape already"),
        ("a.onnx", {"library": ["b.so"]}, "--library b.so: there is no such file"),
        ("a.onnx", {"against": "aa.onnx"}, "--against aa.onnx: there is no such file; did you mean 'a.onnx'?"),
        ("a.onnx", {"inputs": "x.npz"}, "--inputs x.npz: there is no such file"),
        *(
            ("a.onnx", {option: value}, f"--{option} {value}: write a number above 0, such as 600")
            for option in ("seconds", "megabytes")
            for value in ("0", "-1", "nan", "inf", "much")
        ),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(tmp_path: Path, what: str, options: dict[str, Any], words: str) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "m.py").touch()
    (tmp_path / "lost.onnx").symlink_to("elsewhere.onnx")
    with pytest.raises(UsageError) as error:
        parse(what, DEFAULTS | options, tmp_path, torch=lambda: "2.13")
    assert words in str(error.value) and "\n" not in str(error.value)


WRONG = Finding(question="nodes", mark="wrong", text="it is\nso.", remedy="Do that")
FINE = Finding(question="runs", mark="ok", text="fast")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Plain(io.StringIO):
    encoding = "ascii"


def test_a_finding_is_one_line_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")

    def shown(stream: io.StringIO) -> str:
        printer = FindingPrinter(stream)
        printer.print([WRONG, FINE])
        printer.print_summary()
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31m✗" in shown(Terminal())
    lines = ["  X nodes             it is so. Do that", "  ok runs              fast", "1 failed, 1 passed"]
    assert shown(Plain()).splitlines() == lines
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(Terminal())
    assert "✗" in plain and "\x1b[31m" not in plain


def test_findings_survive_a_file_and_decide_the_outcome(tmp_path: Path) -> None:
    finding.write(tmp_path / "a.json", [WRONG, FINE], error="none", link=[["a", "b"]])
    assert finding.read(tmp_path / "a.json") == ([WRONG, FINE], {"error": "none", "link": [["a", "b"]]})
    assert parts.judge([WRONG, FINE], {"judged": 3, "disputed": 1})[0] == "wrong"
    assert parts.judge([], {"agrees": False}) == ("unknown", "nothing to compare with")
