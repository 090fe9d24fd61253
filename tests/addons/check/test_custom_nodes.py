"""The findings of `doit check` for nodes and their libraries: a fault is planted for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto, defs, parser

from opmatrix.addons.check import functions
from opmatrix.addons.check.functions import inline
from opmatrix.addons.check.nodes import Builtin, node_faults, node_findings, used_operators
from opmatrix.addons.check.read import needed_libraries
from opmatrix.basics.finding import Finding
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec

BUILTIN = {("com.microsoft", "Inverse"), ("com.microsoft", "BiasGelu"), ("", "Relu")}


@pytest.fixture(scope="module")
def operators(root: Path) -> tuple[Operator, ...]:
    return load_operators(Paths(root))


@pytest.fixture(scope="module")
def specs(operators: tuple[Operator, ...]) -> list[OpSpec]:
    return [o.spec for o in operators]


def findings_of(made: ModelProto, specs: list[OpSpec], builtin: Builtin) -> Iterator[Finding]:
    found = inline(made, specs)
    return node_findings(found, specs, node_faults(found, specs, builtin))


NORM = "y = mydomain.mygroupnorm <epsilon = 1e-5> (x, groups, scale, bias)"
LABEL = "mydomain::mygroupnorm (gives 'y')"


def model(nodes: str, imports: str = '"": 18, "mydomain": 1', *functions: str) -> ModelProto:
    return parser.parse_model("\n".join((f"""<ir_version: 8, opset_import: [{imports}]>
        g (float[N,4,L] x) => (float[N,4,L] y) <float[1] groups = {{2}}, float[4] scale = {{1, 1, 1, 1}},
        float[4] bias = {{0, 0, 0, 0}}> {{ {nodes} }}""", *functions)))  # fmt: skip


DUAL = "y, z = rknn_cst.cstDualResidual <alpha = 2.0> (x, x)"
GAP = "An attribute given as an input, or the other way round, leaves such a gap; compare with ops/group_norm/spec.py"


UNKNOWN = NORM.replace("groupnorm", "groupnrm")
NO_GROUPNRM = "neither this project nor ONNX Runtime has such an operator"
BRANCHES = ", ".join(f"{name}_branch = g () => (float y) {{ {UNKNOWN} }}" for name in ("then", "else"))
TWICE = '<domain: "local", opset_import: ["": 18]> Twice (a) => (b) { b = Add (a, a) }'
SUPPRESS = "opmatrix::NonMaximumSuppression (gives 'i')"
OWN = "1 mydomain::mygroupnorm (ops/group_norm)"


def nms(inputs: str, which: str = "center") -> ModelProto:
    node = f'i, t, k = opmatrix.NonMaximumSuppression <format = "{which}"> ({inputs})'
    return model(node, '"": 18, "opmatrix": 1')


@pytest.mark.parametrize(
    ("made", "mark", "text", "remedy"),
    [
        (model(f"{NORM} r = Relu (x) z = com.microsoft.Inverse (y) w = com.microsoft.BiasGelu (z, bias)",
               '"": 18, "mydomain": 1, "com.microsoft": 1'), "ok",
         "4 nodes, custom: 1 com.microsoft::BiasGelu (ONNX Runtime's own), 1 com.microsoft::Inverse (ops/inverse), "
         + OWN, ""),
        (model(NORM.replace(" <epsilon = 1e-5>", "")), "ok", f"1 node, custom: {OWN}", ""),
        (model("y = local.Twice (x)", '"": 18, "local": 1', TWICE), "ok",
         "1 node, none custom; calls of the model's functions: 1 local::Twice", ""),
        *((nms(inputs), "ok", "1 node, custom: 1 opmatrix::NonMaximumSuppression (ops/nms)", "")
          for inputs in ("x, s", 'x, s, "", v', 'x, s, "", "", a, b, c')),
        (nms("x"), "wrong", f"{SUPPRESS}: its input 'scores', number 2 of 5 (boxes, scores, classes?, valid?, "
         "factors*), is missing", GAP.replace("group_norm", "nms")),
        (nms("x, s", "centre"), "wrong", f"{SUPPRESS}: attribute 'format': found 'centre', allowed: 'corners', "
         "'center'; did you mean \"'center'\"?", "Compare with ops/nms/spec.py"),
        (model(NORM.replace("y =", '"" =')), "wrong", "mydomain::mygroupnorm (gives ''): output 'y' has no name, and "
         "it is not optional", "Name it, or see ops/group_norm/spec.py"),
        (model(f"{UNKNOWN} {UNKNOWN}"), "wrong", f"mydomain::mygroupnrm (gives 'y') (and 1 more node): {NO_GROUPNRM}",
         "Did you mean 'mydomain::mygroupnorm'?"),
        (model(f"y = If <{BRANCHES}> (c)"), "wrong",
         f"mydomain::mygroupnrm (gives 'y') (and 1 more node): {NO_GROUPNRM}", "Did you mean 'mydomain::mygroupnorm'?"),
        (model(NORM.replace("mydomain.", ""), '"": 18'), "wrong",
         "mygroupnorm (gives 'y'): ONNX has no such operator", "Give the node the domain 'mydomain' of ops/group_norm"),
        (model("y = com.microsoft.BiasGelo (x)", '"": 18, "com.microsoft": 1'), "wrong",
         f"com.microsoft::BiasGelo (gives 'y'): {NO_GROUPNRM}", "Did you mean 'com.microsoft::BiasGelu'?"),
        (model(DUAL, '"": 9, "rknn_cst": 1'), "wrong", "rknn_cst::cstDualResidual (gives 'y'): the model has opset 9, "
         "and ops/dual_residual is declared from 12 on", "Export at opset 12 or above"),
        (model(NORM.replace(", bias", "")), "wrong",
         f"{LABEL}: its input 'bias', number 4 of 4 (x, num_groups, scale, bias), is missing", GAP),
        (model(NORM.replace("groups", '""')), "wrong",
         f"{LABEL}: its input 'num_groups', number 2 of 4 (x, num_groups, scale, bias), is missing", GAP),
        (model("y, z = test.customop.CustomOpTwo (x)", '"": 18, "test.customop": 1'), "wrong",
         "test.customop::CustomOpTwo (gives 'y'): it has 2 outputs, declared: 1 (y)",
         "Compare with ops/custom_op_two/spec.py"),
        (model("y = test.customop.AddAndRound (x)", '"": 18, "test.customop": 1'), "wrong",
         "test.customop::AddAndRound (gives 'y'): ops/add_and_round has no node of its own: it is written as nodes "
         "of custom_op_one and custom_op_two", "Export it again"),
        (model("y = Gelu (x)", '"": 18'), "wrong",
         "Gelu (gives 'y'): the model has opset 18, and the operator begins at 20", "Export at opset 20 or above"),
        (model("y = Upsample (x, scale)", '"": 18'), "wrong", "Upsample (gives 'y'): no operator of opset 18 any more",
         "Export it again; onnx.version_converter may do as well"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else None,
)  # fmt: skip
def test_the_nodes_of_a_model(made: ModelProto, mark: str, text: str, remedy: str, specs: list[OpSpec]) -> None:
    """Other faults are in tests/faults/check_kernels.toml."""
    found = list(findings_of(made, specs, BUILTIN))
    assert [(f.mark, f.text, f.remedy) for f in found] == [(mark, text, remedy)]


def test_an_optional_output_may_have_no_name(specs: list[OpSpec]) -> None:
    made = model(NORM.replace("y =", '"" ='))
    (spec,) = used_operators(model(NORM), specs)
    loose = replace(spec, outputs=tuple(replace(o, optional=True) for o in spec.outputs))
    assert spec.name == "group_norm"
    assert [f.mark for f in findings_of(made, [loose], BUILTIN)] == ["ok"]


def test_unknown_operators_are_named_with_their_domain(specs: list[OpSpec]) -> None:
    made = model("y0 = acme.Fast (x) y1 = acme.Slow (x) y = acme.Fast (x)", '"": 18, "acme": 1')
    (found,) = findings_of(made, specs, BUILTIN)
    assert found.text.startswith("acme::Fast (gives 'y0') (and 2 more nodes, among them acme::Slow): neither")
    assert found.remedy.endswith("`doit new --from-onnx` declares what is missing, from this model")


def test_schemas_are_read_once_for_all_unknown_nodes(specs: list[OpSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes 40 ms, which was once a minute for 566 nodes."""
    read, reads = defs.get_all_schemas_with_history, itertools.count()
    monkeypatch.setattr(defs, "get_all_schemas_with_history", lambda: (next(reads), read())[1])
    functions.onnx_schemas.cache_clear()
    made = model(" ".join(f"y = Unknown{n} (x)" for n in range(1000)))
    (nodes,) = node_faults(inline(made, specs), specs, BUILTIN).values()
    assert len(nodes) == 1000
    assert next(reads) == 1


def test_operators_of_one_domain_share_a_library(tmp_path: Path, operators: tuple[Operator, ...]) -> None:
    paths = Paths(tmp_path)
    for name in ("group_norm", "dual_residual", "custom_op_one", "custom_op_two"):
        paths.ort_library(name).parent.mkdir(parents=True)
        paths.ort_library(name).touch()

    def libraries(*names: str, by_hand: str = "") -> tuple[list[str], Finding]:
        chosen = [o for o in operators if o.name in names]
        own = {by_hand: {"ort.cc"}}
        chosen = [replace(o, handwritten_files=o.handwritten_files | own.get(o.name, set())) for o in chosen]
        found = needed_libraries(paths, chosen)
        (said,) = found.findings
        return [path.name for path in found.libraries], said

    kept, found = libraries("group_norm", "dual_residual", "inverse")
    assert (kept, found.mark) == (["libgroup_norm_ort.so", "libdual_residual_ort.so"], "ok")
    kept, found = libraries("custom_op_two", "custom_op_one")
    assert kept == ["libcustom_op_one+custom_op_two_ort.so"] and "which share a domain" in found.text
    _, found = libraries("custom_op_one", "custom_op_two", by_hand="custom_op_two")
    assert found.mark == "wrong" and "ops/custom_op_two has an ort.cc of its own" in found.text
