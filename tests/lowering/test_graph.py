"""Lowerings: the notation, and the checks of each node, recorded without an exporter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from opmatrix.basics.errors import ExportError
from opmatrix.declaration.load import load_operator
from opmatrix.lowering.call import Lowered, Tensor, find, record
from opmatrix.lowering.graph import UnsupportedModel, node_attributes, since_version, split
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec

X = Tensor(name="X", dtype="float64", shape=(2, None))
GROUPS = Tensor(name="num_groups", dtype="float32", shape=(1,))


@pytest.fixture(scope="module")
def spec(root: Path) -> OpSpec:
    return load_operator(Paths(root), "gelu").spec


def lowered(spec: OpSpec, function: Callable[..., Any]) -> Lowered:
    return Lowered(spec=spec, lowering="custom", function=function)


def nodes(spec: OpSpec, function: Callable[..., Any], *, opset: int = 18) -> list[Any]:
    return list(record(lowered(spec, function), [X, "none"], opset=opset, versions={}, outputs=["Y"]))


def test_a_node_is_recorded_with_names_and_attributes(spec: OpSpec) -> None:
    def function(g: Any, x: Any, approximate: str) -> Any:
        return g.op("some.domain::Op", x, None, x, alpha_f=1, axes_i=[], name_s=approximate, flags_i=(True, False))

    (node,) = nodes(spec, function)
    assert (node.domain, node.op_type) == ("some.domain", "Op")
    assert (list(node.input), list(node.output)) == (["X", "", "X"], ["Y"])
    found = {a.name: a for a in node.attribute}
    assert {n: a.type for n, a in found.items()} == {"alpha": 1, "axes": 7, "name": 3, "flags": 7}
    assert (found["alpha"].f, found["name"].s, list(found["flags"].ints)) == (1.0, b"none", [1, 0])


def test_queries_and_constants(spec: OpSpec) -> None:
    def function(g: Any, x: Any, approximate: str) -> Any:
        assert (g.dtype(x), g.rank(x), g.dim(x, 0)) == ("float64", 2, 2)
        return g.op("Add", g.op("Cast", g.dim(x, 1), to_i=11), g.constant([0.1], "float32"))

    shape, axis, gather, cast, constant, add = nodes(spec, function)
    assert [n.op_type for n in (shape, axis, gather, cast, constant, add)] == [
        "Shape", "Constant", "Gather", "Cast", "Constant", "Add",
    ]  # fmt: skip
    value = numpy_helper.to_array(constant.attribute[0].t)
    assert value.dtype == np.float32
    assert constant.attribute[0].t.data_type == TensorProto.FLOAT
    assert list(add.output) == ["Y"]


@pytest.mark.parametrize("op_type", ["_x", "__a__", "Ünï", "class"])
def test_each_op_type_that_a_declaration_has_is_emitted(op_type: str) -> None:
    assert op_type.isidentifier() and split(f"my.domain::{op_type}") == ("my.domain", op_type)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda g, x, a: g.op("d::Op", x, alpha=1), "attribute 'alpha': write its type as a suffix: alpha_f"),
        (lambda g, x, a: g.op("d::Op", x, alpha_x=1), "attribute 'alpha_x': write its type as a suffix"),
        (lambda g, x, a: g.op("d:Op", x), "'d:Op' is not a name of an operator; write 'Name' or 'domain::Name'"),
        (lambda g, x, a: g.op("Gelu", x), "emits Gelu at opset 18, but it begins at opset 20. Branch on g.opset"),
        (lambda g, x, a: g.op("Relo", x), "no opset has it; did you mean 'Relu'?"),
        (lambda g, x, a: g.op("ReduceMean", x, axes_i=[1]), "ReduceMean at opset 18 (since version 18) has no"),
        (lambda g, x, a: g.op("Relu", x, x), "Relu at opset 18 (since version 14) takes 1 to 1 inputs, the lowering"),
        (lambda g, x, a: g.op("d::Op", x, outputs=2), "returns 2 values, declared: 1 outputs"),
        (lambda g, x, a: None, "returns 1 values, declared: 1 outputs"),
        (lambda g, x, a: x, "returns an input, or one value twice; emit an Identity"),
        (lambda g, x, a: g.op("Relu", g.constant(g.rank(g.op("Relu", x)), "int64")), "for the operator's own inputs"),
        (lambda g, x, a: g.op("Cast", x, to_i=g.dtype(g.op("Relu", x))), "known for the operator's own inputs alone"),
    ],
)  # fmt: skip
def test_a_fault_of_a_lowering_is_named(spec: OpSpec, function: Callable[..., Any], expected: str) -> None:
    with pytest.raises(ExportError) as caught:
        nodes(spec, function)
    assert expected in str(caught.value)


def test_a_refusal_has_its_reason(spec: OpSpec) -> None:
    with pytest.raises(UnsupportedModel, match="not this one"):
        nodes(spec, lambda g, x, a: g.unsupported("not this one"))


def test_a_since_version_is_that_of_the_opset() -> None:
    assert [since_version("ReduceMean", opset=o, inputs=1, attributes=()) for o in (9, 12, 13, 18)] == [1, 11, 13, 18]
    axes = node_attributes({"axes_i": [0]})
    assert since_version("ReduceMean", opset=17, inputs=1, attributes=axes) == 13


def test_floats_are_rounded_to_float32_as_onnx_stores_them(root: Path) -> None:
    spec = load_operator(Paths(root), "group_norm").spec
    seen: list[Any] = []

    def function(g: Any, *given: Any) -> Any:
        seen.extend(given)
        return g.op("d::Op", given[0])

    record(lowered(spec, function), [X, GROUPS, X, X, 1e-5], opset=18, versions={}, outputs=["y"])
    assert seen[-1] == float(np.float32(1e-5))


def test_a_handwritten_lowering_replaces_the_derived_one_and_a_missing_one_is_named(spec: OpSpec) -> None:
    written, derived = ModuleType("written"), ModuleType("derived")
    written.custom, derived.custom = (lambda *a: "written"), (lambda *a: "derived")  # type: ignore[attr-defined]
    path = Path("ops/gelu/lowering.py")
    assert find(spec, "custom", handwritten=written, derived=derived, path=path).function() == "written"
    assert find(spec, "custom", handwritten=None, derived=derived, path=path).function() == "derived"
    with pytest.raises(ExportError) as caught:
        find(spec, "decomposed", handwritten=None, derived=derived, path=path)
    assert "Write it in ops/gelu/lowering.py: def decomposed(g, x, approximate)" in str(caught.value)


@pytest.mark.parametrize("opset", range(9, 26))
def test_the_decomposed_group_norm_fits_every_opset(root: Path, opset: int) -> None:
    """Its nodes fit the schemas of each opset, and none is a custom node."""
    from opmatrix.basics.files import load_module

    paths = Paths(root)
    spec = load_operator(paths, "group_norm").spec
    module = load_module(paths.lowering("group_norm"), "lowering")
    decomposed = Lowered(spec=spec, lowering="decomposed", function=module.decomposed)
    inputs = [Tensor(name=i.name, dtype="float32", shape=None) for i in spec.inputs]
    found = record(decomposed, [*inputs, 1e-5], opset=opset, versions={}, outputs=["y"])
    assert {n.domain for n in found} == {""}
