"""The findings of `doit check` for types, versions and inputs, its options, and its output."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, defs, numpy_helper, parser

from opmatrix.addons.check import parts
from opmatrix.addons.check.arguments import parse
from opmatrix.addons.check.graph_walk import format_range
from opmatrix.addons.check.inputs import find_inputs, tolerances
from opmatrix.addons.check.print_findings import FindingPrinter
from opmatrix.addons.check.read import version_findings
from opmatrix.addons.check.shapes import checker_findings, inference_findings, schemas
from opmatrix.basics import finding
from opmatrix.basics.errors import UsageError
from opmatrix.basics.finding import Finding
from opmatrix.data import dataset
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Input, ValueRule
from tests.support.specs import declare

RELU = "[relu] y = Relu (x)"
GROUP_NORM = "[norm] y = mydomain.mygroupnorm (x, n, s, b)"


def model(
    nodes: str = RELU, *, inputs: str = "float[N,4] x", output: str = "float[N,4] y", constants: str = ""
) -> ModelProto:
    imports = '"": 18, "mydomain": 1, "other": 1'
    head = f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({output}) <{constants}>"
    return parser.parse_model(f"{head} {{ {nodes} }}")


def said(made: ModelProto, root: Path, **more: Any) -> list[tuple[str, str]]:
    schema = schemas([load_operator(Paths(root), "group_norm").spec], {"mydomain": 1})
    return [(f.mark, f.text) for f in inference_findings(made, schema, **more)]


def test_inferred_types_of_the_outputs_are_printed(root: Path) -> None:
    assert said(model(), root) == [("ok", "inferred throughout: y float32[N, 4]")]


def test_the_first_node_that_loses_a_dtype_is_named(root: Path) -> None:
    made = model("a = Relu (x) [lost] b = other.Unknown (a) c = Relu (b) y = Relu (c)")
    text = "the dtype of 'b' is lost at other::Unknown 'lost', and so of 2 values behind it"
    assert said(made, root) == [("wrong", text)]
    known = f"{text}: onnx cannot tell it, ONNX Runtime may"
    assert said(made, root, builtin={("other", "Unknown")}) == [("note", known)]


def test_the_first_node_that_loses_a_rank_is_named(root: Path) -> None:
    made = model("[again] a = Reshape (x, shape) y = Relu (a)", inputs="float[N,4] x, int64[K] shape")
    text = "the rank of 'a' is lost at Reshape 'again', and so of 1 value behind it"
    assert said(made, root) == [("note", f"{text}: onnx cannot tell it, ONNX Runtime may")]


def test_a_rank_that_a_declaration_loses_is_wrong() -> None:
    ports = [defs.OpSchema.FormalParameter(name, "T") for name in ("x", "y")]
    loses = defs.OpSchema(
        "Loses", "other", 1, inputs=ports[:1], outputs=ports[1:], type_constraints=[("T", ["tensor(float)"], "")]
    )
    made = model("[it] y = other.Loses (x)")
    ((mark, text),) = [(f.mark, f.text) for f in inference_findings(made, [loses])]
    assert (mark, text) == ("wrong", "the rank of 'y' is lost at other::Loses 'it'")


def test_a_model_without_shapes_is_a_note(root: Path) -> None:
    inputs = "float[] x, float[1] n, float[4] s, float[4] b"
    made = model(f"{GROUP_NORM} z = Relu (y)", inputs=inputs, output="float[] y")
    cause = "the model gives no shape for an input of mydomain::mygroupnorm 'norm' or of a node before it"
    assert said(made, root) == [("note", f"the rank of 'y' is unknown, because {cause}")]
    (found,) = checker_findings(made, None, ())
    assert found.mark == "note"
    assert found.text.endswith("'x', 'y' have no shape; ONNX Runtime reads such a model")


@pytest.mark.parametrize("output", ["double[N,4] y", "float[N,5] y", "float[N,4,1] y"])
def test_declared_outputs_that_differ_from_the_inferred_are_found(root: Path, output: str) -> None:
    ((mark, text),) = said(model(output=output), root)
    assert mark == "wrong"
    assert text.startswith("the model says that output 'y' is ")
    assert text.endswith("and Relu 'relu' makes it float32[N, 4]")


@pytest.mark.parametrize("custom", [False, True])
def test_a_shape_rule_is_named_where_the_project_has_one(root: Path, custom: bool) -> None:
    constants = "float[1] n = {2}, float[4] s = {1, 1, 1, 1}, float[4] b = {1, 1, 1, 1}"
    made = model(GROUP_NORM if custom else RELU, constants=constants, output="float[N,5] y")
    (found,) = inference_findings(made, schemas([load_operator(Paths(root), "group_norm").spec], {"mydomain": 1}))
    rule = "fix the shape rule in ops/*/spec.py that is wrong, or " if custom else ""
    assert found.remedy == f"The nodes compute another type than the exporter wrote: {rule}export it again"


def test_the_checker_finds_what_inference_ignores() -> None:
    made = model(f"{RELU} {RELU}")
    (found,) = checker_findings(made, None, ())
    assert found.mark == "wrong"
    assert "onnx.checker refuses the model" in found.text
    assert not list(checker_findings(model(), None, ()))


def test_the_checker_finds_external_data_next_to_the_model(tmp_path: Path) -> None:
    made = model("y = Mul (x, c)")
    made.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "c"))
    path = tmp_path / "big.onnx"
    onnx.save(made, path, save_as_external_data=True, location="big.data", size_threshold=0)
    read = onnx.load_model(path, load_external_data=False)
    assert not list(checker_findings(read, path, ()))
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


def test_generated_inputs_are_small_and_reported(tmp_path: Path) -> None:
    made = model(inputs="float[N,4,L] x, int64[N] i, float[1] one")
    found = find_inputs(made, tmp_path / "model.onnx", None, [])
    assert str(found) == "inputs chosen at random, N = 3, L = 5: x float32[3, 4, 5], i int64[3], one float32[1]"
    assert found.inputs["one"].tolist() == [1.0]
    assert set(found.inputs["i"].tolist()) <= {0, 1}
    again = find_inputs(made, tmp_path / "model.onnx", None, [])
    assert found.inputs["x"].tobytes() == again.inputs["x"].tobytes()


def test_generated_inputs_obey_the_rules_of_the_operators_that_take_them(tmp_path: Path) -> None:
    index = Input(name="index", type="int64", dims=("M",), values=ValueRule(index_into="N", negative=True))
    offsets = Input(
        name="offsets",
        type="int64",
        dims=("S + 1",),
        values=ValueRule(minimum=0, maximum="last", sorted="ascending", spans=True),
    )
    spec = declare(
        "gather(table: float32[N]) -> y: float32 like index",
        index,
        offsets,
        Attribute(name="last", kind="int", onnx_name="end"),
        onnx="mydomain::Gather",
        tolerances={},
    )
    inputs = "int64[50] i, int64[S] o, int64[50] other"

    def drawn(more: str = "", *inputs_: str, constants: str = "") -> Any:
        nodes = f"y = mydomain.Gather <end = 5> (t, i, o{more}) z = Relu (other)"
        made = model(nodes, inputs=", ".join([inputs, *inputs_]), constants=constants)
        return find_inputs(made, tmp_path / "model.onnx", None, [spec]).inputs

    found = drawn(constants="float[9] t = {0, 0, 0, 0, 0, 0, 0, 0, 0}")
    assert {*found["i"]} <= {*range(-9, 9)} and len({*found["i"]}) > 9
    assert found["o"].tolist() == [0, 5, 5]
    assert {*found["other"]} == {0, 1}
    assert {*drawn(", other")["other"]} == {0, 1}, "one more than declared is another finding's fault"
    assert {*drawn(", other", "float[0] t")["i"]} == {0, 1}, (
        "no index is legal in an empty table: the operator's own message says so"
    )


def test_an_initializer_needs_no_input(tmp_path: Path) -> None:
    made = model("y = Mul (x, c)", inputs="float[2,4] x, float c", constants="float c = {1}")
    assert list(find_inputs(made, tmp_path / "model.onnx", None, []).inputs) == ["x"]


def test_the_data_set_next_to_a_model_is_used(tmp_path: Path) -> None:
    x, y = np.float32([[1, 2, 3, 4]]), np.float32([[5, 6, 7, 8]])
    dataset.write(tmp_path / "test_data_set_0", dataset.DataSet(inputs={"x": x}, outputs={"y": y}))
    found = find_inputs(model(), tmp_path / "model.onnx", None, [])
    assert found.inputs["x"].tolist() == x.tolist() and found.expected["y"].tolist() == y.tolist()
    renamed = dataset.DataSet(inputs={"some": x}, outputs={"other": y})  # as other tools name them
    dataset.write(tmp_path / "test_data_set_0", renamed)
    found = find_inputs(model(), tmp_path / "model.onnx", None, [])
    assert found.inputs["x"].tolist() == x.tolist() and found.expected["y"].tolist() == y.tolist()


def damaged(kind: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3)) if kind == "npy" else np.savez(file, x=np.zeros((3, 4)))
    content = file.getvalue()
    return {
        "npy": content,
        "cut off": content[:-9],
        "another byte": content.replace(b"descr", b"descs"),
        # In the central directory: the version of the format that a reader needs.
        "a new version": re.sub(rb"(PK\x01\x02..)..", b"\\1\xff\x00", content, flags=re.DOTALL),
    }[kind]


@pytest.mark.parametrize("kind", ["npy", "cut off", "another byte", "a new version"])
def test_a_damaged_file_of_inputs_is_one_sentence(tmp_path: Path, kind: str) -> None:
    """NumPy then raises errors of zipfile and others."""
    path = tmp_path / "in.npz"
    path.write_bytes(damaged(kind))
    with pytest.raises(UsageError, match=r"^--inputs \S+in\.npz: no \.npz file: .*\. Write one with numpy\.savez"):
        find_inputs(model(), tmp_path / "model.onnx", path, [])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"z": np.float32([[1] * 4])}, "no input 'z', it has: x"),
        ({}, "nothing for the input 'x', a float32[N, 4]"),
        ({"x": np.float64([[1] * 4])}, "'x' is float64[1, 4], the model takes float32[N, 4]"),
        ({"x": np.float32([[1] * 5])}, "'x' is float32[1, 5], the model takes float32[N, 4]"),
        ({"x": np.float32([1] * 4)}, "'x' is float32[4], the model takes float32[N, 4]"),
        (None, "no .npz file"),
    ],
    ids=["surplus", "missing", "dtype", "size", "rank", "text"],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, given: dict[str, Any] | None, words: str) -> None:
    path = tmp_path / "in.npz"
    path.write_text("text") if given is None else np.savez(path, **given)
    with pytest.raises(UsageError) as error:
        find_inputs(model(), tmp_path / "model.onnx", path, [])
    assert words in str(error.value)


def test_a_range_counts_nan_and_infinities() -> None:
    assert format_range(np.float32([[1, -2], [np.nan, np.inf]])) == "float32[2, 2] in -2 to 1 and 2 NaN or infinite"
    assert format_range(np.zeros((0, 3), np.int64)) == "int64[0, 3]"


def test_tolerances_have_defaults_per_dtype_and_options() -> None:
    assert tolerances(None, None)["float64"].rtol == 1e-9
    assert {(t.rtol, t.atol) for t in tolerances(0.5, 0.25).values()} == {(0.5, 0.25)}


DEFAULTS: dict[str, Any] = {
    "ort": "", "inputs": "", "shape": [], "library": [], "against": "", "seconds": "", "megabytes": "",
    "exporter": "both", "opset": 18, "rtol": "", "atol": ""
}  # fmt: skip


def test_a_file_and_a_function_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "m.py").touch()
    assert not parse("a.onnx", DEFAULTS, tmp_path, torch=lambda: "2.13").function
    of_file, of_module = (
        parse("m.py:build", DEFAULTS, tmp_path, torch=lambda: "2.13"),
        parse("package.m:build", DEFAULTS, tmp_path, torch=lambda: "2.13"),
    )
    assert of_file.function and of_module.function
    assert of_file.exporters == ("legacy", "dynamo")
    assert of_file.label != of_module.label


def test_an_exporter_that_cannot_write_the_opset_is_skipped() -> None:
    found = parse("m:build", DEFAULTS | {"opset": 12}, Path(), torch=lambda: "2.13")
    assert found.exporters == ("legacy",)
    assert found.left_out == ("the dynamo exporter of torch 2.13 writes opsets 18 to 25, not 12",)


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        (
            "b.onnx",
            {},
            "there is no file 'b.onnx'; write an .onnx file, module:function, or path/to/file.py:function; "
            "did you mean 'a.onnx'?",
        ),
        ("a" * 300, {}, "File name too long"),
        ("a.onnx", {"inputs": "a" * 300}, "File name too long"),
        ("lost.onnx", {}, "'lost.onnx' is a link to 'elsewhere.onnx', where there is no file"),
        (".", {}, "is a folder; write an .onnx file, module:function, or path/to/file.py:function"),
        ("m.py", {}, "name a function in it that builds one, such as m.py:build"),
        ("n.py:build", {}, "there is no file 'n.py', so no function 'build' in it"),
        ("m.py:", {}, "is no model"),
        (
            "m.py:build",
            {"inputs": "x.npz"},
            "--inputs is for an .onnx file; build() gives the inputs of its model itself",
        ),
        (
            "m.py:build",
            {"opset": 3},
            "--opset 3: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 3; the dynamo",
        ),
        (
            "m.py:build",
            {"opset": 12, "exporter": "dynamo"},
            "--opset 12: the dynamo exporter of torch 2.13 writes opsets 18 to 25",
        ),
        ("m.py:build", {"exporter": "new"}, "--exporter new: allowed: legacy, dynamo, both"),
        ("a.onnx", {"rtol": "-1"}, "--rtol -1: write a number that is not negative"),
        ("a.onnx", {"atol": "much"}, "--atol much: write a number"),
        (
            "a.onnx",
            {"shape": ["x"]},
            "--shape x: write the name of an input and its sizes, such as --shape x=1,3,48,192",
        ),
        ("a.onnx", {"shape": ["x=2,-1"]}, "--shape x=2,-1: write the name of an input and its sizes"),
        ("a.onnx", {"shape": ["x=1", "x=2"]}, "--shape x=2: the input 'x' has a shape already"),
        ("a.onnx", {"library": ["b.so"]}, "--library b.so: there is no such file"),
        ("a.onnx", {"against": "aa.onnx"}, "--against aa.onnx: there is no such file; did you mean 'a.onnx'?"),
        ("a.onnx", {"inputs": "x.npz"}, "--inputs x.npz: there is no such file"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, what: str, options: dict[str, Any], words: str) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "m.py").touch()
    (tmp_path / "lost.onnx").symlink_to("elsewhere.onnx")
    with pytest.raises(UsageError) as error:
        parse(what, DEFAULTS | options, tmp_path, torch=lambda: "2.13")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


WRONG = Finding(question="nodes", mark="wrong", text="it is\nso.", remedy="Do that")
FINE = Finding(question="runs", mark="ok", text="fast")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Plain(io.StringIO):
    encoding = "ascii"


def test_a_finding_is_one_line_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = {}
    for stream in (Terminal(), Plain()):
        teller = FindingPrinter(stream)
        teller.print([WRONG, FINE])
        teller.print_summary()
        shown[type(stream)] = stream.getvalue()
    assert "\x1b[31m✗" in shown[Terminal]
    assert shown[Plain].splitlines() == [
        "  X nodes             it is so. Do that",
        "  ok runs              fast",
        "1 failed, 1 passed",
    ]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    teller = FindingPrinter(stream := Terminal())
    teller.print([WRONG])
    assert "✗" in stream.getvalue()
    assert "\x1b[31m" not in stream.getvalue()


def test_findings_survive_a_file(tmp_path: Path) -> None:
    finding.write(tmp_path / "a.json", [WRONG, FINE], error="none", link=[["a", "b"]])
    assert finding.read(tmp_path / "a.json") == ([WRONG, FINE], {"error": "none", "link": [["a", "b"]]})


def test_a_model_has_the_outcome_of_its_findings() -> None:
    """The other outcomes are in test_several_models.py."""
    fine, disputed = finding.ok("agrees", "with all"), finding.note("agrees", "implementations disagree at Add 'a'")
    assert parts.judge([fine], {"judged": 3, "skipped": 0, "disputed": 0}) == ("right", "with all")
    assert parts.judge([fine, disputed], {"judged": 3, "disputed": 1}) == ("disagree", disputed.text)
    assert parts.judge([fine, disputed, WRONG], {"judged": 3, "disputed": 1})[0] == "wrong"
    assert parts.judge([fine], {"judged": 3, "skipped": 1})[0] == "unknown"
    assert parts.judge([], {"agrees": False}) == ("unknown", "nothing to compare with")
