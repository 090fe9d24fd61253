"""The findings of `doit check` for nodes and their libraries: a fault is planted for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

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


def norm(op_type: str = "mygroupnorm", *, inputs: str = "x groups scale bias", **more: Any) -> NodeProto:
    """Return group_norm's node, named "norm", with the declared parts except those given."""
    attributes = {"domain": "mydomain", "epsilon": 1e-5} | more
    return helper.make_node(op_type, inputs.split(" "), ["y"], name="norm", **attributes)


def model(*nodes: NodeProto, opset: int = 18, **versions: int) -> ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4, "L"]) for n in "xy")
    numbers = {"groups": [2.0], "scale": [1.0] * 4, "bias": [0.0] * 4}
    constants = [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in numbers.items()]
    imports = {"": opset, "mydomain": 1} | versions
    return helper.make_model(
        helper.make_graph(nodes, "graph", [x], [y], constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=8,
    )


def test_nodes_without_faults_are_counted_and_named(specs: list[OpSpec]) -> None:
    inverse = helper.make_node("Inverse", ["y"], ["z"], domain="com.microsoft")
    theirs = helper.make_node("BiasGelu", ["z", "bias"], ["w"], domain="com.microsoft")
    found = list(
        findings_of(
            model(norm(), helper.make_node("Relu", ["x"], ["r"]), inverse, theirs, **{"com.microsoft": 1}),
            specs,
            BUILTIN,
        )
    )
    assert [(f.mark, f.text) for f in found] == [
        (
            "ok",
            "4 nodes, custom: 1 com.microsoft::BiasGelu (ONNX Runtime's own), 1 com.microsoft::Inverse (ops/inverse), "
            "1 mydomain::mygroupnorm (ops/group_norm)",
        )
    ]


NORM = "mydomain::mygroupnorm 'norm'"


@pytest.mark.parametrize(
    ("planted", "text", "remedy"),
    [
        (lambda: model(norm("mygroupnrm")),
         "mydomain::mygroupnrm 'norm': neither this project nor ONNX Runtime has such an operator",
         "Did you mean 'mydomain::mygroupnorm'?"),
        (lambda: model(norm(domain="my.domain"), **{"my.domain": 1}),
         "my.domain::mygroupnorm 'norm': no operator of this project; its op type is that of ops/group_norm, in "
         "another domain", "Did you mean mydomain::mygroupnorm?"),
        (lambda: model(norm(domain="")), "mygroupnorm 'norm': ONNX has no such operator",
         "Give the node the domain 'mydomain' of ops/group_norm"),
        (lambda: model(helper.make_node("BiasGelo", ["x"], ["y"], domain="com.microsoft"), **{"com.microsoft": 1}),
         "com.microsoft::BiasGelo (gives 'y'): neither this project nor ONNX Runtime has such an operator",
         "Did you mean 'com.microsoft::BiasGelu'?"),
        (lambda: model(norm(), mydomain=3),
         f"{NORM}: the model imports version 3 of 'mydomain', and ops/group_norm has: 1, 2",
         "Export it at one of these, or add the version to `versions` in ops/group_norm/spec.py"),
        (lambda: model(helper.make_node("CustomOpTwo", ["x"], ["y"], domain="test.customop")),
         "test.customop::CustomOpTwo (gives 'y'): the model does not import its domain 'test.customop'",
         "Export it again with the domain's version (custom_opsets), or add helper.make_opsetid"),
        (lambda: model(norm(epsilom=1e-5)), f"{NORM}: it has no attribute 'epsilom'; declared: epsilon",
         "Did you mean 'epsilon'?"),
        (lambda: model(norm(epsilon=1)), f"{NORM}: attribute 'epsilon': it is INT, declared: FLOAT",
         "Compare with ops/group_norm/spec.py"),
        (lambda: model(norm(epsilon=-1.0)), f"{NORM}: attribute 'epsilon': found -1.0, allowed: 0.0 to inf",
         "Compare with ops/group_norm/spec.py"),
        (lambda: model(helper.make_node("cstDualResidual", ["x", "x"], ["y", "z"], domain="rknn_cst"), rknn_cst=1),
         "rknn_cst::cstDualResidual (gives 'y'): attribute 'alpha' is missing and has no default",
         "Write it, a float; see ops/dual_residual/spec.py"),
        (
            lambda: model(
                helper.make_node("cstDualResidual", ["x", "x"], ["y", "z"], domain="rknn_cst", alpha=2.0),
                opset=9,
                rknn_cst=1,
            ),
            "rknn_cst::cstDualResidual (gives 'y'): the model has opset 9, and ops/dual_residual is declared from 12 "
            "on",
            "Export at opset 12 or above",
        ),
        (lambda: model(norm(inputs="x groups scale")),
         f"{NORM}: its input 'bias', number 4 of 4 (x, num_groups, scale, bias), is missing",
         "An attribute given as an input, or the other way round, leaves such a gap; compare with "
         "ops/group_norm/spec.py"),
        (lambda: model(norm(inputs="x  scale bias")),
         f"{NORM}: its input 'num_groups', number 2 of 4 (x, num_groups, scale, bias), is missing",
         "An attribute given as an input, or the other way round, leaves such a gap; compare with "
         "ops/group_norm/spec.py"),
        (lambda: model(norm(inputs="x groups scale bias bias")),
         f"{NORM}: it has 5 inputs, declared: 4 (x, num_groups, scale, bias)", "Compare with ops/group_norm/spec.py"),
        (
            lambda: model(
                helper.make_node("CustomOpTwo", ["x"], ["y", "z"], domain="test.customop"), **{"test.customop": 1}
            ),
            "test.customop::CustomOpTwo (gives 'y'): it has 2 outputs, declared: 1 (y)",
            "Compare with ops/custom_op_two/spec.py",
        ),
        (lambda: model(helper.make_node("AddAndRound", ["x"], ["y"], domain="test.customop"), **{"test.customop": 1}),
         "test.customop::AddAndRound (gives 'y'): ops/add_and_round has no node of its own: it is written as nodes "
         "of custom_op_one and custom_op_two", "Export it again"),
        (lambda: model(helper.make_node("Relo", ["x"], ["y"])), "Relo (gives 'y'): ONNX has no such operator",
         "Did you mean 'Relu'?"),
        (lambda: model(helper.make_node("Gelu", ["x"], ["y"])),
         "Gelu (gives 'y'): the model has opset 18, and the operator begins at 20", "Export at opset 20 or above"),
        (lambda: model(helper.make_node("Upsample", ["x", "scale"], ["y"])),
         "Upsample (gives 'y'): no operator of opset 18 any more",
         "Export it again; onnx.version_converter may do as well"),
    ],
    ids=lambda value: "" if callable(value) else str(value)[:30],
)  # fmt: skip
def test_a_planted_fault_is_named(
    specs: list[OpSpec], planted: Callable[[], ModelProto], text: str, remedy: str
) -> None:
    found = list(findings_of(planted(), specs, BUILTIN))
    assert [(f.mark, f.text, f.remedy) for f in found] == [("wrong", text, remedy)]


def test_an_attribute_with_a_default_may_be_missing(specs: list[OpSpec]) -> None:
    node = norm()
    del node.attribute[:]
    assert [f.mark for f in findings_of(model(node), specs, BUILTIN)] == ["ok"]


def test_optional_and_variadic_inputs_are_counted_as_declared(specs: list[OpSpec]) -> None:
    def nms(*inputs: str) -> ModelProto:
        outputs = ["indices", "selected", "kept"]
        node = helper.make_node("NonMaximumSuppression", inputs, outputs, domain="opmatrix", format="center")
        return model(node, opmatrix=1)

    for inputs in (("x", "s"), ("x", "s", "", "v"), ("x", "s", "", "", "a", "b", "c")):
        assert [f.mark for f in findings_of(nms(*inputs), specs, BUILTIN)] == ["ok"], inputs
    (found,) = findings_of(nms("x"), specs, BUILTIN)
    assert "its input 'scores', number 2 of 5" in found.text


def test_a_required_output_must_have_a_name(specs: list[OpSpec]) -> None:
    def norms(*outputs: str) -> ModelProto:
        node = norm()
        node.output[:] = outputs
        return model(node)

    (found,) = findings_of(norms(""), specs, BUILTIN)
    assert "output 'y' has no name, and it is not optional" in found.text
    (spec,) = [spec for spec in specs if spec.name == "group_norm"]
    loose = replace(spec, outputs=tuple(replace(o, optional=True) for o in spec.outputs))
    assert [f.mark for f in findings_of(norms(""), [loose], BUILTIN)] == ["ok"]


def test_an_invalid_value_is_named_with_the_allowed_ones(specs: list[OpSpec]) -> None:
    node = helper.make_node("NonMaximumSuppression", ["x", "s"], ["i", "t", "k"], domain="opmatrix", format="centre")
    (found,) = findings_of(model(node, opmatrix=1), specs, BUILTIN)
    assert "attribute 'format': found 'centre', allowed: 'corners', 'center'; did you mean" in found.text


def test_unknown_operators_are_named_with_their_domain(specs: list[OpSpec]) -> None:
    kinds = [helper.make_node(kind, ["x"], [f"y{i}"], domain="acme") for i, kind in enumerate(("Fast", "Slow", "Fast"))]
    (found,) = findings_of(model(*kinds, acme=1), specs, BUILTIN)
    assert found.text.startswith("acme::Fast (gives 'y0') (and 2 more nodes, among them acme::Slow): neither")
    assert found.remedy.endswith("`doit new --from-onnx` declares what is missing, from this model")


def test_one_fault_of_several_nodes_is_reported_once(specs: list[OpSpec]) -> None:
    (found,) = findings_of(model(norm("mygroupnrm"), norm("mygroupnrm")), specs, BUILTIN)
    assert found.text.startswith("mydomain::mygroupnrm 'norm' (and 1 more node): ")


def test_a_node_in_a_branch_is_checked(specs: list[OpSpec]) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branch = helper.make_graph([norm("mygroupnrm")], "branch", [], [y])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    found = list(findings_of(model(node), specs, BUILTIN))
    assert [f.mark for f in found] == ["wrong"]
    (nodes,) = node_faults(inline(model(node), specs), specs, BUILTIN).values()
    assert [n.name for n in nodes] == ["norm", "norm"]


def test_schemas_are_read_once_for_all_unknown_nodes(specs: list[OpSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes 40 ms, which was once a minute for 566 nodes."""
    read, reads = defs.get_all_schemas_with_history, itertools.count()
    monkeypatch.setattr(defs, "get_all_schemas_with_history", lambda: (next(reads), read())[1])
    functions.onnx_schemas.cache_clear()
    made = model(*(helper.make_node(f"Unknown{n}", ["x"], ["y"]) for n in range(1000)))
    (nodes,) = node_faults(inline(made, specs), specs, BUILTIN).values()
    assert len(nodes) == 1000
    assert next(reads) == 1


def test_a_function_of_the_model_needs_no_operator(specs: list[OpSpec]) -> None:
    made = model(helper.make_node("Twice", ["x"], ["y"], domain="local"), local=1)
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    made.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 18)]))
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
    assert [o.name for o in used_operators(model(norm()), specs)] == ["group_norm"]
