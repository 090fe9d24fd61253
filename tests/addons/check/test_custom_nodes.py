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


def test_nodes_without_faults_are_counted_and_named(specs: list[OpSpec]) -> None:
    nodes = f"{NORM} r = Relu (x) z = com.microsoft.Inverse (y) w = com.microsoft.BiasGelu (z, bias)"
    found = findings_of(model(nodes, '"": 18, "mydomain": 1, "com.microsoft": 1'), specs, BUILTIN)
    assert [(f.mark, f.text) for f in found] == [
        (
            "ok",
            "4 nodes, custom: 1 com.microsoft::BiasGelu (ONNX Runtime's own), 1 com.microsoft::Inverse (ops/inverse), "
            "1 mydomain::mygroupnorm (ops/group_norm)",
        )
    ]


DUAL = "y, z = rknn_cst.cstDualResidual <alpha = 2.0> (x, x)"
GAP = "An attribute given as an input, or the other way round, leaves such a gap; compare with ops/group_norm/spec.py"


@pytest.mark.parametrize(
    ("nodes", "imports", "text", "remedy"),
    [
        (NORM.replace("mydomain.", ""), '"": 18', "mygroupnorm (gives 'y'): ONNX has no such operator",
         "Give the node the domain 'mydomain' of ops/group_norm"),
        ("y = com.microsoft.BiasGelo (x)", '"": 18, "com.microsoft": 1',
         "com.microsoft::BiasGelo (gives 'y'): neither this project nor ONNX Runtime has such an operator",
         "Did you mean 'com.microsoft::BiasGelu'?"),
        (DUAL, '"": 9, "rknn_cst": 1', "rknn_cst::cstDualResidual (gives 'y'): the model has opset 9, and "
         "ops/dual_residual is declared from 12 on", "Export at opset 12 or above"),
        (NORM.replace(", bias", ""), '"": 18, "mydomain": 1',
         f"{LABEL}: its input 'bias', number 4 of 4 (x, num_groups, scale, bias), is missing", GAP),
        (NORM.replace("groups", '""'), '"": 18, "mydomain": 1',
         f"{LABEL}: its input 'num_groups', number 2 of 4 (x, num_groups, scale, bias), is missing", GAP),
        ("y, z = test.customop.CustomOpTwo (x)", '"": 18, "test.customop": 1',
         "test.customop::CustomOpTwo (gives 'y'): it has 2 outputs, declared: 1 (y)",
         "Compare with ops/custom_op_two/spec.py"),
        ("y = test.customop.AddAndRound (x)", '"": 18, "test.customop": 1',
         "test.customop::AddAndRound (gives 'y'): ops/add_and_round has no node of its own: it is written as nodes "
         "of custom_op_one and custom_op_two", "Export it again"),
        ("y = Gelu (x)", '"": 18', "Gelu (gives 'y'): the model has opset 18, and the operator begins at 20",
         "Export at opset 20 or above"),
        ("y = Upsample (x, scale)", '"": 18', "Upsample (gives 'y'): no operator of opset 18 any more",
         "Export it again; onnx.version_converter may do as well"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_a_planted_fault_is_named(specs: list[OpSpec], nodes: str, imports: str, text: str, remedy: str) -> None:
    """Other faults are in tests/faults/check_kernels.toml."""
    found = list(findings_of(model(nodes, imports), specs, BUILTIN))
    assert [(f.mark, f.text, f.remedy) for f in found] == [("wrong", text, remedy)]


def test_an_attribute_with_a_default_may_be_missing(specs: list[OpSpec]) -> None:
    made = model(NORM.replace(" <epsilon = 1e-5>", ""))
    assert [f.mark for f in findings_of(made, specs, BUILTIN)] == ["ok"]


def nms(inputs: str, which: str = "center") -> ModelProto:
    node = f'i, t, k = opmatrix.NonMaximumSuppression <format = "{which}"> ({inputs})'
    return model(node, '"": 18, "opmatrix": 1')


def test_optional_and_variadic_inputs_are_counted_as_declared(specs: list[OpSpec]) -> None:
    for inputs in ("x, s", 'x, s, "", v', 'x, s, "", "", a, b, c'):
        assert [f.mark for f in findings_of(nms(inputs), specs, BUILTIN)] == ["ok"], inputs
    (found,) = findings_of(nms("x"), specs, BUILTIN)
    assert "its input 'scores', number 2 of 5" in found.text


def test_a_required_output_must_have_a_name(specs: list[OpSpec]) -> None:
    made = model(NORM.replace("y =", '"" ='))
    (found,) = findings_of(made, specs, BUILTIN)
    assert "output 'y' has no name, and it is not optional" in found.text
    (spec,) = [spec for spec in specs if spec.name == "group_norm"]
    loose = replace(spec, outputs=tuple(replace(o, optional=True) for o in spec.outputs))
    assert [f.mark for f in findings_of(made, [loose], BUILTIN)] == ["ok"]


def test_an_invalid_value_is_named_with_the_allowed_ones(specs: list[OpSpec]) -> None:
    (found,) = findings_of(nms("x, s", "centre"), specs, BUILTIN)
    assert "attribute 'format': found 'centre', allowed: 'corners', 'center'; did you mean" in found.text


def test_unknown_operators_are_named_with_their_domain(specs: list[OpSpec]) -> None:
    made = model("y0 = acme.Fast (x) y1 = acme.Slow (x) y = acme.Fast (x)", '"": 18, "acme": 1')
    (found,) = findings_of(made, specs, BUILTIN)
    assert found.text.startswith("acme::Fast (gives 'y0') (and 2 more nodes, among them acme::Slow): neither")
    assert found.remedy.endswith("`doit new --from-onnx` declares what is missing, from this model")


UNKNOWN = NORM.replace("groupnorm", "groupnrm")


def test_one_fault_of_several_nodes_is_reported_once(specs: list[OpSpec]) -> None:
    (found,) = findings_of(model(f"{UNKNOWN} {UNKNOWN}"), specs, BUILTIN)
    assert found.text.startswith("mydomain::mygroupnrm (gives 'y') (and 1 more node): ")


def test_a_node_in_a_branch_is_checked(specs: list[OpSpec]) -> None:
    branches = ", ".join(f"{name}_branch = g () => (float y) {{ {UNKNOWN} }}" for name in ("then", "else"))
    made = model(f"y = If <{branches}> (c)")
    assert [f.mark for f in findings_of(made, specs, BUILTIN)] == ["wrong"]
    (nodes,) = node_faults(inline(made, specs), specs, BUILTIN).values()
    assert [n.op_type for n in nodes] == ["mygroupnrm", "mygroupnrm"]


def test_schemas_are_read_once_for_all_unknown_nodes(specs: list[OpSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes 40 ms, which was once a minute for 566 nodes."""
    read, reads = defs.get_all_schemas_with_history, itertools.count()
    monkeypatch.setattr(defs, "get_all_schemas_with_history", lambda: (next(reads), read())[1])
    functions.onnx_schemas.cache_clear()
    made = model(" ".join(f"y = Unknown{n} (x)" for n in range(1000)))
    (nodes,) = node_faults(inline(made, specs), specs, BUILTIN).values()
    assert len(nodes) == 1000
    assert next(reads) == 1


def test_a_function_of_the_model_needs_no_operator(specs: list[OpSpec]) -> None:
    twice = '<domain: "local", opset_import: ["": 18]> Twice (a) => (b) { b = Add (a, a) }'
    made = model("y = local.Twice (x)", '"": 18, "local": 1', twice)
    (found,) = findings_of(made, specs, BUILTIN)
    assert (found.mark, found.text) == ("ok", "1 node, none custom; calls of the model's functions: 1 local::Twice")


def libraries(paths: Paths, operators: tuple[Operator, ...], *names: str) -> tuple[list[str], list[Finding]]:
    found = needed_libraries(paths, [o for o in operators if o.name in names])
    return [str(p.relative_to(paths.root)) for p in found.libraries], list(found.findings)


def built(paths: Paths, *names: str) -> None:
    for name in names:
        paths.ort_library(name).parent.mkdir(parents=True)
        paths.ort_library(name).touch()


def test_operators_of_different_domains_keep_their_libraries(tmp_path: Path, operators: tuple[Operator, ...]) -> None:
    paths = Paths(tmp_path)
    built(paths, "group_norm", "dual_residual")
    kept, (found,) = libraries(paths, operators, "group_norm", "dual_residual", "inverse")
    assert [Path(p).name for p in kept] == ["libgroup_norm_ort.so", "libdual_residual_ort.so"]
    assert found.mark == "ok"


def test_operators_of_one_domain_share_a_library(tmp_path: Path, operators: tuple[Operator, ...]) -> None:
    paths = Paths(tmp_path)
    built(paths, "custom_op_one", "custom_op_two")
    kept, (found,) = libraries(paths, operators, "custom_op_two", "custom_op_one")
    assert [Path(p).name for p in kept] == ["libcustom_op_one+custom_op_two_ort.so"]
    assert "which share a domain" in found.text


def test_a_handwritten_binding_cannot_share_a_library(tmp_path: Path, operators: tuple[Operator, ...]) -> None:
    paths = Paths(tmp_path)
    built(paths, "custom_op_one", "custom_op_two")
    by_hand = tuple(
        replace(o, handwritten_files=o.handwritten_files | {"ort.cc"}) if o.name == "custom_op_two" else o
        for o in operators
    )
    _, (found,) = libraries(paths, by_hand, "custom_op_one", "custom_op_two")
    assert found.mark == "wrong"
    assert "ops/custom_op_two has an ort.cc of its own" in found.text


def test_the_operators_of_a_model_are_found(specs: list[OpSpec]) -> None:
    assert [o.name for o in used_operators(model(NORM), specs)] == ["group_norm"]
