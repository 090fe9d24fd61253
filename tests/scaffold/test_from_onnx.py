"""Custom nodes of a model as operators: what is derived from the model, and what stays unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from opmatrix.basics.errors import UsageError
from opmatrix.declaration.validation.operator import declaration
from opmatrix.project.dtypes import DTYPES
from opmatrix.scaffold import onnx_process
from opmatrix.scaffold.draft import Draft, domain_owner
from opmatrix.scaffold.from_onnx import by_operator, from_nodes, from_nodes_and_schema
from opmatrix.scaffold.render import render
from opmatrix.signature.signature import ONNX_DOMAINS, to_float32
from opmatrix.spec import Attribute, Dims, FromKernel, OnnxOp, Random, SameAs

F32, F64, I64 = "float32", "float64", "int64"


def value(name: str = "v", dtype: str | None = F32, shape: list[Any] | None = None) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape}


def node(*inputs: Any, outputs: Any = None, name: str = "node_1", **attributes: tuple[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "domain": "acme.ops", "imported": 1, "op_type": "FastThing", "inputs": list(inputs),
        "outputs": outputs or [value("out")],
        "attributes": {k: {"kind": kind, "value": v} for k, (kind, v) in attributes.items()},
    }  # fmt: skip


def with_table(dtype: str = F64, shape: Sequence[int] = (1, 2), value: object = ((0.1, 1e-300),)) -> dict[str, Any]:
    """Return a node with a tensor attribute."""
    table = {"kind": "tensor", "dtype": dtype, "shape": list(shape), "value": value}
    return node({"name": "x", "dtype": F32, "shape": None}) | {"attributes": {"table": table}}


def draft(*nodes: dict[str, Any]) -> Draft:
    return from_nodes(nodes, shown="model.onnx")


def test_one_node_becomes_a_declaration() -> None:
    made = draft(
        node(
            value("x", shape=["N", 3]), value("layer.weight", shape=[3]), value("ids", I64, [3]),
            alpha=("float", 0.10000000149011612), axes=("ints", [0, 1]), mode=("string", "fast"),
        )
    )  # fmt: skip
    spec = made.spec
    assert (spec.name, spec.onnx.domain, spec.onnx.op_type, spec.torch) == ("fast_thing", "acme.ops", "FastThing", None)
    assert [(i.name, i.type, i.optional) for i in spec.inputs] == [
        ("x", "T", False), ("weight", "T", False), ("ids", "int64", False),
    ]  # fmt: skip
    assert spec.types == {"T": ("float32",)}
    assert [(a.name, a.kind, a.default) for a in spec.attributes] == [
        ("alpha", "float", None), ("axes", "ints", None), ("mode", "string", None),
    ]  # fmt: skip
    assert made.attributes == {"alpha": 0.1, "axes": (0, 1), "mode": "fast"}
    assert made.seen and made.seen.cases[0].inputs == {
        "x": Random(shape=(2, 3)), "weight": Random(shape=(3,)), "ids": Random(shape=(3,)),
    }  # fmt: skip
    assert "(N, 3)" in spec.inputs[0].doc and not made.notes


def test_a_name_that_cannot_be_a_variable_is_that_of_the_node_alone() -> None:
    """A keyword of C++, one of Python, what generated code uses, and the operator's own name."""
    made = draft(node(value("x"), signed=("int", 1), lambda_=("float", 0.5), op=("int", 2), fast_thing=("int", 3)))
    assert [(a.name, a.onnx_name) for a in made.spec.attributes] == [
        ("signed_", "signed"), ("lambda_", None), ("op_", "op"), ("fast_thing_", "fast_thing"),
    ]  # fmt: skip
    assert made.attributes == {"signed_": 1, "lambda_": 0.5, "op_": 2, "fast_thing_": 3}
    assert not [*declaration(made.spec, "fast_thing")]


# At 71b51ad8: as attributes the first six were refused, as values all but int.
@pytest.mark.parametrize("name", ["None", "lambda", "True", "await", "from", "is", "int", "namespace", "xor", "not"])
def test_a_keyword_is_the_name_of_an_attribute_in_the_node_alone_and_of_no_value(name: str) -> None:
    """The first two are handed examples of issue 33."""
    values = (value(name), value(f"layer.{name}"))
    spec = draft(node(*values, outputs=[value(name)], **{name: ("int", 2)})).spec
    assert [(a.name, a.onnx_name) for a in spec.attributes] == [(f"{name}_", name)]
    assert [part.name for part in (*spec.inputs, *spec.outputs)] == ["x", "x1", "y"]


def test_a_name_that_is_not_utf8_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = helper.make_graph([helper.make_node("F", ["x"], ["name"], domain="acme")], "g", [], [])
    path.write_bytes(helper.make_model(graph).SerializeToString().replace(b"name", b"nam\xe9"))
    found = onnx_process.main(str(path))
    with pytest.raises(UsageError, match=r"^model\.onnx: no model of ONNX can be read: a name in it is not UTF-8$"):
        by_operator(json.loads(found), path.name)


def described(folder: Path, *nodes: onnx.NodeProto, values: str = "", dtype: int = 1) -> dict[str, Any]:
    """Describe a model of these nodes; the first of `values` is its input, the second its output."""
    made = [helper.make_tensor_value_info(name, dtype, [1]) for name in values]
    graph = helper.make_graph(nodes, "g", made[:1], made[1:])
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    return onnx_process.describe(str(folder / "m.onnx"))


def test_what_only_a_model_has_is_described(tmp_path: Path) -> None:
    """A node that ONNX does not know, in ONNX's domain, as graph surgeons add TensorRT's; a constant without an output;
    bytes as a string; an element type that ONNX does not have."""
    nodes = [
        helper.make_node("Constant", [], [], value=helper.make_tensor("t", 1, [1], [1.0])),
        helper.make_node("EfficientNMS_TRT", ["x"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Tokenizer", ["z"], ["t"], domain="acme", model=b"\x0a\x00\xff", names=["é"], text="é"),
    ]
    found = described(tmp_path, *nodes, values="xt")
    assert found["misplaced"] == ["EfficientNMS_TRT"]
    assert [n["op_type"] for n in found["nodes"]] == ["Tokenizer"]
    assert found["nodes"][0]["attributes"] == {
        "model": {"kind": "bytes", "value": None},
        "names": {"kind": "strings", "value": ["é"]},
        "text": {"kind": "string", "value": "é"},
    }
    (made,) = described(tmp_path, helper.make_node("F", ["x"], ["y"], domain="a"), values="xy", dtype=99)["nodes"]
    assert made["inputs"][0]["dtype"] == "of the element type 99"


def test_a_torch_schema_adds_a_torch_operator() -> None:
    """`signed` is a keyword of C++: the kernel has signed_, the node and torch have signed."""
    nodes = [node(value("x"), value("w"), alpha=("float", 0.5), strict=("int", 1), signed=("int", 1))]
    schema = "my::fast(Tensor x, Tensor w, float alpha, int signed, bool strict=False) -> Tensor"
    spec = from_nodes_and_schema(nodes, schema, shown="m.onnx").spec
    assert (spec.name, spec.onnx.domain, spec.onnx.op_type) == ("fast", "acme.ops", "FastThing")
    assert spec.torch and spec.torch.name == "my::fast"
    assert [(a.name, a.onnx_name, a.torch_name) for a in spec.attributes if a.torch_name] == [
        ("signed_", "signed", "signed")
    ]


@pytest.mark.parametrize(
    ("domain", "owner"),
    [
        ("", "ONNX"),
        ("ai.onnx", "ONNX"),
        ("ai.onnx.ml", "ONNX"),
        ("ai.onnx.preview.training", "ONNX"),
        ("com.microsoft", "ONNX Runtime"),
        ("com.microsoft.nchwc", "ONNX Runtime"),
        ("ai.onnx.contrib", None),  # of onnxruntime-extensions, so its nodes can be declared; an example does
        ("com.microsoftish", None),
    ],
)
def test_a_domain_has_one_owner_in_all_commands(domain: str, owner: str | None, tmp_path: Path) -> None:
    assert domain_owner(domain) == owner
    assert (domain in ONNX_DOMAINS) == (owner == "ONNX")
    assert bool(described(tmp_path, helper.make_node("F", ["x"], ["y"], domain=domain))["nodes"]) == (owner is None)
    declared = replace(draft(node(value("x"))).spec, onnx=OnnxOp(domain=domain, op_type="F"))
    mistakes = [m.text for m in declaration(declared, declared.name) if m.field == "onnx.domain"]
    assert bool(mistakes) == (owner == "ONNX")


def test_a_name_that_is_taken_gets_another() -> None:
    """That of an operator which is a keyword, those of inputs with one name, and what the reference uses."""
    made = draft(node(*(value(f"{n}.w") for n in range(150))) | {"op_type": "Signed"}).spec
    assert (made.name, [i.name for i in made.inputs]) == ("signed_op", ["w", *(f"w_{n}" for n in range(2, 151))])
    (found,) = draft(node(value("np"), outputs=[value("out", I64)])).spec.inputs
    assert found.name == "np_"  # it returns np.zeros(np_.shape, np.int64)


SHAPES = {
    "that of an input": ([["N", 3], [3]], ["N", 3], SameAs(input="x")),
    "that of the second input": ([["N", 3], [4]], [4], SameAs(input="x1")),
    "a scalar": ([["N", 3], [3]], [], Dims(dims=())),
    "another": ([["N", 6], [3]], ["N", 2], FromKernel(rank=2)),
    "an unknown one": ([["N", 6], [3]], None, SameAs(input="x")),
    "that of an input of unknown shape": ([None, [3]], [4, 4], SameAs(input="x")),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_an_output_has_a_shape_rule_that_the_model_obeys(kind: str) -> None:
    inputs, output, rule = SHAPES[kind]
    made = draft(node(*(value(f"v{n}", shape=s) for n, s in enumerate(inputs)), outputs=[value("sum", shape=output)]))
    assert [(o.name, o.shape) for o in made.spec.outputs] == [("sum", rule)]
    assert made.sizes == ({} if isinstance(rule, SameAs) else {"sum": () if output == [] else (1, 2)})


def test_an_unknown_dtype_becomes_a_float_and_gives_no_model_as_do_sizes_that_no_tensor_has() -> None:
    made = draft(node(value("x", None)))
    assert made.spec.types == {"T": ("float32", "float64")} and made.seen is None
    assert "the dtype of the first input is not in the model" in made.notes[0]
    assert draft(node(value("x", shape=[-5, 2**40]))).seen is None


# At 71b51ad8: those without infinities got them.
@pytest.mark.parametrize(
    ("dtype", "special"),
    [("float16", True), ("float8_e5m2", True), ("float8_e4m3fn", False), ("float8_e5m2fnuz", False)],
)
def test_a_dtype_without_infinities_gets_none(dtype: str, special: bool) -> None:
    assert ("math.inf" in render(draft(node(value("x", dtype))))["ops/fast_thing/cases.py"]) is special


# At 71b51ad8: AttributeError for bfloat16, each float8, int4 and uint4, such as: numpy has no attribute 'bfloat16'.
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_of_a_placeholder_gives_each_dtype(dtype: str) -> None:
    found: dict[str, Any] = {}
    exec(render(draft(node(value("x"), outputs=[value("out", dtype)])))["ops/fast_thing/reference.py"], found)
    given = found["fast_thing"](np.ones((2, 3), np.float32))
    assert given.shape == (2, 3)
    assert given.dtype == (object if dtype == "string" else np.dtype(getattr(ml_dtypes, dtype, dtype)))


def test_the_declaration_has_the_imported_version_of_the_domain() -> None:
    found = node(value("x", shape=[3])) | {"imported": 3}
    for made in (draft(found), from_nodes_and_schema([found], "my::f(Tensor x) -> Tensor", shown="model.onnx")):
        assert made.spec.onnx.versions == (1, 3)
    seen = draft(found).seen
    assert seen and seen.domain_version == 3
    assert draft(node(value("x"))).spec.onnx.versions == (1,)


def test_parts_that_some_nodes_lack_are_optional_or_have_a_guessed_default() -> None:
    made = draft(
        node(value("x"), value("bias"), k=("int", 3)),
        node(value("y"), name="node_2"),
        node(value("z"), None, value("scale"), name="node_3", k=("int", 4)),
    )
    assert [(i.name, i.optional) for i in made.spec.inputs] == [("x", False), ("bias", True), ("scale", True)]
    assert [(a.name, a.default) for a in made.spec.attributes] == [("k", 0)]
    assert made.guessed == ("k",) and "k: left out by some nodes" in made.notes[0]


def test_outputs_that_some_nodes_leave_out_are_optional() -> None:
    first = node(value("x", shape=[2]), outputs=[None, value("b"), value("c")])
    made = draft(first, node(value("x"), outputs=[value("d"), value("e")]))
    assert [(o.name, o.optional) for o in made.spec.outputs] == [("d", True), ("b", False), ("c", True)]
    assert made.seen and made.seen.absent == ("d",)
    text = render(made)
    assert 'absent=("d", "c"),' in text["ops/fast_thing/cases.py"]
    assert "OptionalView<T> d" in text["native/fast_thing/kernel.h"]


@pytest.mark.parametrize(
    ("nodes", "dtypes", "parts"),
    [
        ([node(value(), value()), node(value("v", F64), value("v", F64), outputs=[value("o", F64)])], (F32, F64),
         "T T T"),
        ([node(value(), outputs=[value("values"), value("indices", I64)])], (F32,), "T T int64"),
        ([node(value("x", "string"), outputs=[value("y", "string"), value("n", I64)])], ("string",), "T T int64"),
        ([node(value("x", "int4"), value("w", "uint4"), outputs=[value("y", "int4")])], ("int4",), "T uint4 T"),
    ],
)  # fmt: skip
def test_dtypes_that_vary_together_are_one_type_variable_and_others_are_fixed(
    nodes: list[dict[str, Any]], dtypes: tuple[str, ...], parts: str
) -> None:
    spec = draft(*nodes).spec
    assert spec.types == {"T": dtypes} and [part.type for part in (*spec.inputs, *spec.outputs)] == parts.split()


def test_a_tensor_attribute_has_the_dtype_and_the_sizes_of_all_nodes() -> None:
    made = draft(with_table(value=[[1 / 3, 0.1]]), with_table(shape=[2, 2], value=[[1.0, 2.0], [3.0, 4.0]]))
    assert made.spec.attributes == (Attribute(name="table", kind="tensor", type="float64", dims=(None, 2), doc="TODO"),)
    assert made.attributes == {"table": ((1 / 3, 0.1),)}
    single = draft(with_table("float32", value=[[to_float32(0.1), 0.5]]))
    assert single.attributes == {"table": ((0.1, 0.5),)}


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node(value("x", "float4e2m1"))], "'x' is float4e2m1, which no operator takes"),
        ([node(value("x", "complex64"))], "takes in a custom op. Declare float32 with a last axis of 2"),
        ([node(value("x", "sequence_type"))], "'x' is sequence_type"),
        ([with_table(shape=[40, 50], value=None)], "is a tensor of 2000 elements, or in another file: "),
        ([with_table("float8_e5m2", value=None)], "is a tensor of float8_e5m2, not supported: float32, float64, "),
        ([with_table(), node(value("x"))], "is a tensor that other nodes leave out, and each node must have it"),
        ([with_table(), with_table("int8")], "of float64 and rank 2, and elsewhere of another dtype or rank"),
        ([with_table(), with_table(shape=[1], value=[1.0])], "and elsewhere of another dtype or rank"),
        ([with_table(), node(value("x"), table=("int", 1))], "of the kind int, elsewhere of tensor"),
        ([node(value("x"), body=("graph", None))], "of the kind graph, not supported: leave it out"),
        ([node(value("x"), **{"a.b": ("int", 1)})],
         "attribute 'a.b' is not an identifier of ONNX: letters, digits and _"),
        ([node(value("x"), k=("int", 1)), node(value("x"), k=("float", 1.0))], "of the kind float, elsewhere of int"),
        ([node()], "has no first input"),
        ([node(value("x"), name="") | {"outputs": []}], "the node that gives '' has no output"),
        ([node(value("x", "of the element type 99"))], "'x' is of the element type 99, which no operator takes"),
        ([node(None, value("x"))], "has no first input"),
        ([node(value("x")), node(value("x"), outputs=[None, value()])], "no output is one that all its nodes have"),
        ([node(value("x"), value("w", I64)), node(value("x"), value("w", F64))],
         "input 1 is float64 or int64, and not as the first input is"),
        ([node(value("x"), model=("bytes", None))],
         "attribute 'model' contains bytes that are not text (a NUL, or not UTF-8)"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_be_declared_are_refused(nodes: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(UsageError, match=r"^model.onnx: acme.ops::FastThing cannot be declared:") as raised:
        draft(*nodes)
    assert reason in str(raised.value)


def facts(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": list(nodes), "domains": ["", "com.microsoft"], "functions": [], "misplaced": []}


def test_nodes_of_one_operator_are_one_declaration() -> None:
    other = node(value("x")) | {"op_type": "Other"}
    found = by_operator(facts(node(value("x")), other, node(value("y"))), "m.onnx")
    assert {k: len(v) for k, v in found.items()} == {"acme.ops::FastThing": 2, "acme.ops::Other": 1}
    assert [*by_operator(facts(node(value("x")), other), "m.onnx", op_type="Other")] == ["acme.ops::Other"]


@pytest.mark.parametrize(
    ("found", "op_type", "message"),
    [
        (facts(), "", r"m.onnx: every node is known: .*'ai.onnx', 'com.microsoft'.* There is nothing to declare."),
        ({"error": "DecodeError: x"}, "", "m.onnx: no model of ONNX can be read: DecodeError: x"),
        (facts() | {"misplaced": ["EfficientNMS_TRT"]}, "",
         "m.onnx: EfficientNMS_TRT: ONNX has no such operator, and the "),
        (facts(node(value())) | {"misplaced": ["Pad2"]}, "Pad2",
         r"m.onnx: Pad2: .* Set node.domain to one of your own"),
        (facts(node(value())), "FastThink", "no unknown node 'FastThink', there is: acme.ops::FastThing; did you mean"),
    ],
)  # fmt: skip
def test_a_model_without_custom_nodes_is_an_error(found: dict[str, Any], op_type: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        by_operator(found, "m.onnx", op_type=op_type)


def test_a_torch_schema_gets_the_dtypes_of_the_model() -> None:
    """Which a schema does not say: of the first input, and others of their own."""
    nodes = [
        node(value("x", dtype), value("ids", I64), outputs=[value("y", dtype), value("found", I64)])
        for dtype in ("float16", F64)
    ]
    made = from_nodes_and_schema(nodes, "my::look(Tensor x, Tensor ids) -> (Tensor, Tensor)", shown="m.onnx").spec
    assert made.types == {"T": ("float16", F64)}
    assert [(i.name, i.type) for i in made.inputs] == [("x", "T"), ("ids", I64)]
    assert [(o.type, o.shape) for o in made.outputs] == [("T", SameAs(input="x")), (I64, SameAs(input="ids"))]
    assert made.tolerances["custom"].keys() == {"float16", F64, I64}


BOTH = [node(value("x"), value("w"), alpha=("float", 0.5))]
UNFIT = "the schema does not fit acme.ops::FastThing"


@pytest.mark.parametrize(
    ("nodes", "arguments", "first", "reason"),
    [
        ([node(value("x", "complex64"))], "Tensor x, Tensor? w=None", "", "'x' is complex64, "),
        ([node(value("x"), value("w", I64)), node(value("x"), value("w", F64))], "Tensor x, Tensor? w=None", "",
         "input 1 is float64 or int64, and not"),
        (BOTH, "Tensor x, float alpha", UNFIT, "has 2 inputs, the schema 1"),
        (BOTH, "Tensor x, Tensor y, Tensor z, Tensor? w, float alpha", UNFIT, "has 2 inputs, the schema 3 to 4"),
        (BOTH, "Tensor x, Tensor y, float alfa", UNFIT, "an attribute 'alpha', the schema: alfa; did you mean 'alfa'?"),
        (BOTH, "Tensor x, Tensor y, int alpha", UNFIT, "has 'alpha' as float, the schema as int"),
    ],
)  # fmt: skip
def test_a_schema_that_does_not_fit_and_dtypes_that_no_operator_has_are_refused(
    nodes: list[dict[str, Any]], arguments: str, first: str, reason: str
) -> None:
    with pytest.raises(UsageError) as raised:
        from_nodes_and_schema(nodes, f"my::f({arguments}) -> Tensor", shown="m.onnx")
    assert first in str(raised.value) and reason in str(raised.value)
