"""Size expressions: each evaluator computes what Python computes; names, solutions and mistakes of declarations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from opmatrix.codegen import python_modules
from opmatrix.codegen.size_checks import SizeCheck, size_checks
from opmatrix.codegen.size_code import SizeCode
from opmatrix.declaration.models import DynamicAxis, dynamic_axes
from opmatrix.declaration.validation.operator import declaration
from opmatrix.declaration.validation.sizes import sizes
from opmatrix.export.gates import registered
from opmatrix.sizes.expressions import solve
from opmatrix.sizes.known import Known
from opmatrix.sizes.rules import definitions
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    Dims,
    FromKernel,
    Input,
    Model,
    OpSpec,
    Output,
    Random,
    SameAs,
)
from tests.support.specs import attribute, declare, inputs, outputs

SHAPES = {"x": (7, 3, 5), "weight": (8, 4), "offsets": (10,), "free": (2, 0)}
VALUES: dict[str, AttributeValue] = {"groups": 2, "stride": (3, 2), "padding": (1, 0), "dim": -2}
# What the names stand for in SHAPES and VALUES.
NAMES = {"N": 7, "C": 5, "R": 3, "K": 4, "P": 9, "D": 4, "groups": 2, "stride": (3, 2), "padding": (1, 0), "dim": -2}
SPEC = declare(
    "sized() -> y: float32 like x",
    *inputs("x: float32[N, ..., C]", rank="R"),
    *inputs("weight: float32[groups*K, D], offsets: float32[P + 1], free: float32"),
    attribute("groups=1", minimum=1),
    attribute("stride=(1, 1)", minimum=1),
    attribute("padding=(0, 0)", minimum=0),
    attribute("dim=0"),
    attribute("scale=1.0"),
    summary="Every kind of size.",
)
EXPRESSIONS = [
    "N", "R", "K", "P", "groups", "stride[0]", "padding[1]", "x.shape[dim]", "x.shape[-1]", "prod(...)",
    "2*(N + 1)", "2*R - N + 3", "(C - 6) // 2 + 3", "N // stride[1]", "C // (2*groups)", "K*groups", "prod(...)*C",
    "(C + 2*padding[0] - stride[0]*(D - 2) - 1) // stride[1] + 1", "x.shape[dim] + P", "N - (C - D)",
]  # fmt: skip


def expected(expression: str) -> int:
    """Return what Python computes."""
    x = SimpleNamespace(shape=SHAPES["x"])
    text = expression.replace("prod(...)", "prod")
    return int(eval(text, {**NAMES, "x": x, "prod": math.prod(SHAPES["x"][1:-1])}))


def returning(expression: str | int, spec: OpSpec = SPEC) -> OpSpec:
    return replace(spec, outputs=(Output(name="y", type="float32", shape=Dims(dims=(expression,))),))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numbers(expression: str) -> None:
    assert not list(sizes(returning(expression)))
    assert Known(spec=SPEC, shapes=SHAPES, attributes=VALUES).size(expression) == expected(expression)


class CppSizes(tuple[int, ...]):
    """Sizes of native/include/opmatrix/tensor_view.h."""

    @property
    def rank(self) -> int:
        return len(self)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_cpp(expression: str) -> None:
    code = SizeCode(spec=SPEC, shape=lambda name: f"{name}.sizes()", attribute=lambda name: f"{name}_")
    inputs = {name: SimpleNamespace(sizes=lambda shape=shape: CppSizes(shape)) for name, shape in SHAPES.items()}
    helpers = {
        "floor_divide": lambda number, divisor: number // divisor,
        "axis_size": lambda found, axis: found[axis],
        "sizes_between": lambda found, front, back: found[front : len(found) - back],
        "numel": math.prod,
    }

    def truncating(text: str) -> str:  # C++ rounds towards 0: only where no dividend can be negative
        return text.replace(" / ", " // ")

    attributes = {f"{name}_": value for name, value in VALUES.items()}
    assert eval(truncating(code(expression)), {**inputs, **helpers, **attributes}) == expected(expression)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_python(expression: str) -> None:
    spec = returning(expression)
    text = python_modules.output_shape(spec, spec.outputs[0], spec.inputs[0])
    tensors = {name: SimpleNamespace(shape=shape, dim=lambda shape=shape: len(shape)) for name, shape in SHAPES.items()}
    assert eval(text, {**tensors, **VALUES, "math": math}) == (expected(expression),)


def inferred(spec: OpSpec, shapes: Sequence[Sequence[int | str | None] | None]) -> list[int | str | None] | None:
    """Return the shape that onnx infers for the output of a node."""
    module: dict[str, Any] = {}
    exec(python_modules.render(spec)["schema.py"], module)
    names = [part.name for part in spec.inputs]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    node = helper.make_node("Sized", names, ["y"], domain="test.domain", **VALUES)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("test.domain", 1)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=8)
    with registered(module["schema"]()):
        found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph.output[0]
    if not found.type.tensor_type.HasField("shape"):
        return None
    return [
        None if d.dim_param.startswith("unk__") else d.dim_param or d.dim_value
        for d in found.type.tensor_type.shape.dim
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_onnx(expression: str) -> None:
    assert inferred(returning(expression), [*SHAPES.values()]) == [expected(expression)]


RULES: list[tuple[SameAs | Dims, list[int | str | None], list[int | str | None] | None]] = [
    (Dims(dims=(2, "...", "D")), [2, 3, 4], ["M", 4]),
    (Dims(dims=("...",)), [3], ["M"]),
    (SameAs(input="x", replace={"dim": None}), [7, 5], [7, "C"]),
    (SameAs(input="x", replace={"dim": "K*2"}), [7, 8, 5], [7, 8, "C"]),
    (SameAs(input="x", replace={0: None, -1: 3}), [3, 3], ["M", 3]),
]


@pytest.mark.parametrize(("rule", "shape", "partly"), RULES)
def test_shapes_whose_rank_depends_on_an_input(
    rule: SameAs | Dims, shape: list[int | str | None], partly: list[int | str | None]
) -> None:
    output = Output(name="y", type="float32", shape=rule)
    spec = replace(SPEC, outputs=(output,))
    assert not list(sizes(spec))
    dynamic: dict[str, Any] = {**SHAPES, "x": (7, "M", "C")}
    assert Known(spec=spec, shapes=SHAPES, attributes=VALUES).output(output) == shape
    assert inferred(spec, [*SHAPES.values()]) == shape
    found = Known(spec=spec, shapes=dynamic, attributes=VALUES).output(output)
    assert found == ([2, *partly] if shape == [2, 3, 4] else partly)
    assert inferred(spec, [*dynamic.values()]) == found
    assert inferred(spec, [None, *list(SHAPES.values())[1:]]) is None  # the rank is not known
    tensors = {name: SimpleNamespace(shape=one, dim=lambda one=one: len(one)) for name, one in SHAPES.items()}

    def with_replaced(before: Sequence[int], changes: dict[int, int | None]) -> tuple[int, ...]:
        after: list[int | None] = list(before)
        for axis, size in changes.items():
            after[axis] = size
        return tuple(size for size in after if size is not None)

    text = python_modules.output_shape(spec, output, spec.inputs[0])
    assert list(eval(text, {**tensors, **VALUES, "with_replaced": with_replaced})) == shape


@pytest.mark.parametrize(
    ("expression", "name", "solution"),
    [
        ("N + 1", "N", "x.shape[0] - 1"),
        ("N - 1", "N", "x.shape[0] + 1"),
        ("5 - N", "N", "5 - x.shape[0]"),
        ("32*k", "k", "x.shape[0] // 32"),
        ("2*(k + 1)", "k", "x.shape[0] // 2 - 1"),
        ("groups*K", "K", "x.shape[0] // groups"),
        ("N*K", "K", None),
        ("N // 2", "N", None),
        ("N*N", "N", None),
    ],
)
def test_a_name_follows_from_an_expression(expression: str, name: str, solution: str | None) -> None:
    assert solve(expression, name, "x.shape[0]", lambda term: term.of == "groups") == solution


def test_definitions_of_names() -> None:
    assert definitions(SPEC) == {
        "R": ("x.rank",), "N": ("x.shape[0]",), "C": ("x.shape[-1]",), "D": ("weight.shape[1]",),
        "K": ("weight.shape[0] // groups",), "P": ("offsets.shape[0] - 1",),
    }  # fmt: skip


def checks_of(spec: OpSpec) -> list[SizeCheck]:
    return [*size_checks(SizeCode(spec=spec, shape=str, attribute=str))]


def test_the_checks_of_sizes() -> None:
    """An inverted division is checked, a size that would be negative too, and what follows from itself is not."""
    found = {check.part.name: check.conditions for check in checks_of(SPEC) if check.part}
    assert found["weight"] == ["weight.rank == 2", "weight[0] == groups * (weight[0] / groups)"]
    assert found["offsets"] == ["offsets.rank == 1", "offsets[0] - 1 >= 0"]
    assert found["x"] == ["x.rank >= 2"]
    # A rank is checked before the sizes are read, also where the input comes later in the declaration.
    early = Input(name="early", type="float32", dims=("C",), optional=True)
    checks = checks_of(replace(SPEC, inputs=(early, *SPEC.inputs)))
    assert [check.conditions[0] for check in checks if check.part][:2] == ["x.rank >= 2", "early.rank == 1"]
    # Lists need as many items as the sizes use.
    listed = checks_of(returning("stride[1] + stride[0] + padding[0]"))
    assert [c.conditions for c in listed if c.part is None] == [["stride.size() >= 2"], ["padding.size() >= 1"]]
    # A name of an attribute is its value in an input too.
    parts = (X, Input(name="weight", type="float32", dims=("groups", "K")))
    spec = replace(SPEC, inputs=parts, attributes=(GROUPS,))
    assert "groups" not in definitions(spec)
    (conditions,) = (c.conditions for c in checks_of(spec) if c.part and c.part.name == "weight")
    assert conditions == ["weight.rank == 2", "weight[0] == groups"]


X = Input(name="x", type="float32", dims=("N", "C"))
LATER = Input(name="later", type="float32", dims=("Q",), optional=True)
LIKE_X = Output(name="y", type="float32", shape=SameAs(input="x"))
GROUPS = Attribute(name="groups", kind="int", default=1, minimum=1)
STRIDE = Attribute(name="stride", kind="ints", default=(1,), minimum=0)
MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    ({"dims": ("...", "C", "...")}, ["inputs[1].dims: found ('...', 'C', '...'), allowed: '...' once"]),
    ({"dims": ("C*Groups",)}, ["found 'Groups', allowed: ", "did you mean 'groups'?"]),
    ({"dims": ("J*K",)}, ["found 'J' in 'J*K', and nothing gives its value. Declare it as the size of an axis of a"]),
    ({"dims": ("N // C",)}, ["found 'N // C': it divides by 'C', allowed: by a number from 1 on, or an attribute"]),
    ({"dims": ("N // stride[0]",)}, ["it divides by 'stride[0]', allowed"]),
    ({"dims": ("stride[1]",)}, ["found 'stride[1]', allowed with a default of 2 or more elements of 'stride'"]),
    ({"dims": ("strid[0]",)}, ["found 'strid[0]', allowed: an element of an attribute of kind ints", "'stride'?"]),
    (
        {"dims": ("x.shape[axis]",)},
        ["found 'axis', allowed: a number, or an attribute of kind int that names", "groups"],
    ),
    ({"dims": ("z.shape[0]",)}, ["found 'z', allowed: x, more"]),
    ({"dims": ("prod(...)",)}, ["found 'prod(...)', allowed: prod(...) where a required input has '...' in its dims"]),
    ({"dims": ("scale",), "optional": True}, []),
    ({"dims": ("K",), "at": {"groups": "K"}}, []),
    ({"dims": ("K",), "at": {"group": 4}}, ["inputs[1].at: found 'group', allowed: a number, or an attribute of kind"]),
    ({"dims": ("K",), "at": {"groups": -4}}, ["inputs[1].at: found -4, allowed: a name, a number from 0 on"]),
    ({"dims": ("K",), "at": {"groups": "J"}}, ["inputs[1].at: found 'J'"]),
    ({"dims": ("K",), "at": {"groups": 4}, "optional": True}, ["found {'groups': 4}, allowed: only for a required"]),
    ({"dims": ("2*scale",)}, ["found 'scale', an attribute, allowed: one of kind int that ONNX has, not optional"]),
    ({"dims": (-1,)}, ["inputs[1].dims: found -1, allowed: a name, a number from 0 to 2147483647, an expression"]),
    ({"dims": (2**31,)}, ["inputs[1].dims: found 2147483648, allowed: a name, a number from 0 to 2147483647"]),
    ({"dims": ("4294967296*N",)}, ["it has the number 4294967296, allowed: numbers up to 2147483647"]),
    ({"dims": ("3 - 4",)}, ["inputs[1].dims: found '3 - 4': it is -1, allowed: a size, from 0 on"]),
    ({"dims": ("-N",)}, ["found '-N': '-N' is none of: names of sizes, whole numbers, and + - * // of them"]),
    ({"dims": ("9**9**9**9",)}, ["found '9**9**9**9': '9 ** 9 ** 9 ** 9' is none of"]),
    ({"dims": ("+".join(["N"] * 5000),)}, ["'N+N+N+", "and so on, allowed: an expression of at most 200 characters"]),
    ({"dims": ("-" * 5000 + "N",)}, ["and so on, allowed: an expression of at most 200 characters"]),
    ({"dims": ("max(N, C)",)}, ["found 'max(N, C)': it calls 'max', allowed: names of sizes, whole numbers, and + -"]),
    ({"dims": ("N\0",)}, ["no expression: "]),
    ({"dims": ("class",)}, ["found 'class', allowed: a name of letters, digits and _ that is not a keyword of Python"]),
    ({"dims": ("None",)}, ["found 'None', allowed: a name of letters"]),
    ({"dims": ("groups", "C")}, []),
    ({"dims": ("(N + bits - 1) // bits", "bits", "2*shift")}, []),
    ({"dims": ("2*level", "level + 1")}, ["found 'level', an attribute, allowed: one of kind int that ONNX has, not"]),
    ({"dims": ("N // shift",)}, ["it divides by 'shift', allowed"]),
    (
        {"dims": ("any",)},
        ["found 'any', also an attribute, allowed: one that ONNX has, with minimum= from 0 on, for its"],
    ),
    ({"dims": ("stride",)}, ["found 'stride', also an attribute, allowed: one of its elements, such as 'stride[0]'"]),
    ({"dims": ("x.shape[2]",)}, ["found 'x.shape[2]', allowed: an axis of 'x', -2 to 1"]),
    (
        {"dims": ("more.shape[1]", "M")},
        ["a size of 'more' is computed from its own shape; allowed: a name for one size"],
    ),
    ({"dims": ("N", 1), "rank": "2R"}, ["inputs[1].rank: found '2R', allowed: a name"]),
    (
        {"dims": ("N", 1), "rank": "groups"},
        ["inputs[1].rank: found 'groups', also an attribute, allowed: another name"],
    ),
    (
        {"dims": ("NN",), "optional": True},
        ["found 'NN', allowed: sizes that other inputs have: N, C", "did you mean 'N'?"],
    ),
    ({"dims": ("Q",), "optional": True}, []),
    (
        {"rank": "Q", "optional": True, "dims": ("Q", "...")},
        ["inputs[1].rank: found 'Q', which only inputs that may be absent have; allowed: the rank of a required"],
    ),
    (
        {"dims": ("...", "M"), "further_as": "x"},
        ["inputs[1].further_as: found 'x', allowed: nothing: no required input"],
    ),
    ({"dims": ("M",), "further_as": "z"}, ["inputs[1].further_as: found 'z' at dims=('M',), allowed: where dims has"]),
    ({"dims": ("2*Q",)}, ["inputs[1].dims: found 'Q', allowed: sizes that required inputs have: N, C"]),
    (
        {"dims": ("2*Q",), "optional": True},
        ["inputs[1].dims: found 'Q', allowed: sizes that required inputs have: N, C"],
    ),
]


@pytest.mark.parametrize(("given", "texts"), MISTAKES)
def test_mistakes_of_inputs(given: dict[str, Any], texts: list[str]) -> None:
    more = Input(**{"name": "more", "type": "float32", **given})
    attributes = (
        GROUPS, STRIDE, Attribute(name="scale", kind="float", default=1.0), Attribute(name="any", kind="int", default=0),
        Attribute(name="bits", kind="int", default=4, allowed=(4, 8)),
        Attribute(name="level", kind="int", default=0, allowed=(-1, 0)),
        Attribute(name="shift", kind="int", default=0, allowed=(0, 2)),
    )  # fmt: skip
    spec = replace(SPEC, inputs=(X, more, LATER), attributes=attributes, outputs=(LIKE_X,))
    found = [f"{mistake.field}: {mistake.text}" for mistake in sizes(spec)]
    assert bool(found) == bool(texts), found
    assert all(text in found[0] for text in texts), found


def test_a_mistake_of_several_axes_is_reported_once() -> None:
    twice = Input(name="twice", type="float32", dims=("2*scale", "N + scale"))
    spec = replace(SPEC, inputs=(X, twice), outputs=(LIKE_X,))
    assert [m.field for m in declaration(spec, "sized") if "'scale'" in m.text] == ["inputs[1].dims"]


def test_the_order_of_attributes_is_free_without_a_torch_schema() -> None:
    attributes = (*SPEC.attributes, Attribute(name="last", kind="int"))
    assert list(declaration(replace(SPEC, attributes=attributes), "sized")) == []


RULE_MISTAKES: list[tuple[SameAs | Dims | FromKernel, str]] = [
    (Dims(dims=("...", "N")), "shape.dims: found ('...', 'N'), allowed: '...' where a required input has it"),
    (Dims(dims=("Q",)), "found 'Q', allowed: sizes that required inputs have: N, C, groups"),
    (SameAs(input="x", replace={"dimm": 1}), "shape.replace['dimm']: found 'dimm', allowed: a number, or an attribute"),
    (SameAs(input="x", replace={0: "N // 0"}), "shape.replace[0]: found 'N // 0': it divides by '0', allowed"),
    (FromKernel(), "shape: found rank=None, dims=None, allowed: one of rank, dims and input"),
    (FromKernel(rank=1, dims=("M",)), "shape: found rank=1, dims=('M',), allowed: one of rank, dims and input"),
    (
        FromKernel(rank=1, input="x", replace={0: "M"}),
        "shape: found rank=1, dims=None, input='x', allowed: one of rank, dims and input",
    ),
    (FromKernel(rank=1, replace={0: 1}), "shape.replace: found {0: 1}, allowed: with input, which has these axes"),
    (FromKernel(input="x"), "shape.replace: found {}, allowed: the name of a size that the kernel decides as the"),
    (FromKernel(input="x", replace={0: "C"}), "found {0: 'C'}, allowed: the name of a size that the kernel decides"),
    (
        FromKernel(input="x", replace={0: "M", 1: "2*M"}),
        "replace[1]: found '2*M': the kernel decides M; allowed: alone",
    ),
    (FromKernel(input="x", replace={0: "Groups"}), "replace: found 'Groups', allowed: N, C, Q, groups, or a name"),
    (FromKernel(input="bias", replace={0: "M"}), "shape.input: found 'bias', allowed: x"),
    (FromKernel(input="x", replace={2: "M"}), "replace[2]: found 2, allowed: an axis of 'x', -2 to 1"),
    (FromKernel(input="x", replace={"dim": "M"}), "replace['dim']: found 'dim', allowed: a number, or an attribute"),
    (FromKernel(rank=-1), "shape.rank: found -1, allowed: a number from 0 on"),
    (FromKernel(dims=("M", "...")), "found ('M', '...'), allowed: a size for each axis, without '...'"),
    (FromKernel(dims=("M", "M + 1")), "found 'M + 1': "),
    (
        FromKernel(dims=("M", "c")),
        "found 'c', allowed: N, C, Q, groups, or a name that resembles none, for a size that",
    ),
    (FromKernel(dims=("M", "Groups")), "found 'Groups', allowed: N, C, Q, groups, or a name that resembles none"),
    (SameAs(input="x", replace={2: 1}), "replace[2]: found 2, allowed: an axis of 'x', -2 to 1"),
    (SameAs(input="x", replace={-1: 1, 1: 2}), "replace[1]: found 1, which another key names too, allowed: each axis"),
    (Dims(dims=("N", "0 - 2")), "found '0 - 2': it is -2, allowed: a size, from 0 on"),
    (Dims(dims=("k",)), "found 'k', an attribute, allowed: one of kind int that ONNX has, not optional, with minimum="),
    (SameAs(input="x", replace={"k": 2}), "found 'k', allowed: a number, or an attribute of kind int that names the"),
]


@pytest.mark.parametrize(("rule", "text"), RULE_MISTAKES)
def test_mistakes_of_outputs(rule: SameAs | Dims | FromKernel, text: str) -> None:
    optional = replace(LATER, name="bias")
    attributes = (GROUPS, Attribute(name="k", kind="int", optional=True, minimum=0))
    spec = replace(SPEC, inputs=(X, optional), attributes=attributes, outputs=(replace(LIKE_X, shape=rule),))
    (found,) = [f"{mistake.field}: {mistake.text}" for mistake in sizes(spec)]
    assert text in found


CIRCLES: list[tuple[list[dict[str, Any]], str]] = [
    (
        [{"dims": ("b.shape[0] + 1",)}, {"dims": ("a.shape[0] - 1",)}],
        "the shapes of 'a' and 'b' are computed from each",
    ),
    ([{"dims": ("b.rank",)}, {"dims": ("a.rank", "...")}], "the shapes of 'a' and 'b' are computed from each other"),
    ([{"dims": ("R", "...")}, {"dims": ("2*R",), "rank": "R"}], "a size of 'b' is computed from its own shape"),
    (
        [{"dims": ("A", "B"), "rank": "R"}, {"dims": ("A",), "rank": "R"}],
        "found 'R' for the rank 1, and 'R' is the rank",
    ),
    ([{"dims": ("P", "...")}, {"dims": ("P", "prod(...)")}], ""),
    ([{"dims": ("P + 1",)}, {"dims": ("P + 2",)}], ""),
    ([{"dims": ("R",)}, {"rank": "R"}], ""),
]


@pytest.mark.parametrize(("given", "text"), CIRCLES)
def test_sizes_that_follow_from_each_other(given: list[dict[str, Any]], text: str) -> None:
    """Such sizes would refuse every call, and no input could be drawn."""
    inputs = tuple(Input(name=name, type="float32", **fields) for name, fields in zip("ab", given, strict=True))
    output = Output(name="y", type="float32", shape=SameAs(input="a"))
    found = [f"{m.field}: {m.text}" for m in sizes(replace(SPEC, inputs=inputs, attributes=(), outputs=(output,)))]
    assert len(found) == bool(text) and all(text in one for one in found), found


SHARING = replace(
    SPEC,
    inputs=(
        *inputs("x: float32[..., N]"),
        *inputs("index: float32[2, ..., M]", further_as="x"),
        *inputs("first: float32[Q]?, second: float32[2*Q + N]?"),
    ),
    attributes=(),
)
SHARED: list[tuple[dict[str, tuple[int, ...] | None], str]] = [
    ({}, ""),
    ({"index": (2, 7, 9, 1)}, "index must have shape (2, ..., M) with ... = (7, 3) as in x, got (2, 7, 9, 1)"),
    ({"index": (2, 7, 1)}, "index must have shape (2, ..., M) with ... = (7, 3) as in x, got (2, 7, 1)"),
    ({"x": (5,), "index": (2, 1)}, ""),
    ({"second": (12,)}, "second must have shape (2*Q + N,) with Q = 4 as in first and N = 5 as in x, got (12,)"),
    ({"second": None}, ""),
    ({"first": None, "second": (12,)}, ""),
]


@pytest.mark.parametrize(("changed", "message"), SHARED)
def test_shared_sizes_and_names_of_optional_inputs(changed: dict[str, tuple[int, ...] | None], message: str) -> None:
    """The checks of the fake kernel, which has the conditions and the messages of the bindings."""
    assert not list(sizes(SHARING))
    shapes = {"x": (7, 3, 5), "index": (2, 7, 3, 0), "first": (4,), "second": (13,)} | changed
    tensors = {
        name: None if shape is None else SimpleNamespace(shape=shape, dim=lambda shape=shape: len(shape))
        for name, shape in shapes.items()
    }
    faults = [*python_modules.shape_faults(SHARING)]
    found = [eval(f"f{fault.message!r}", dict(tensors)) for fault in faults if eval(fault.condition, dict(tensors))]
    assert found == ([message] if message else [])


def test_an_impossible_size_is_an_error() -> None:
    known = Known(spec=SPEC, shapes=SHAPES, attributes={**VALUES, "dim": 3, "padding": (1,)})
    with pytest.raises(ValueError, match=r"'N - 9' is -2 with \{'N': 7\}"):
        known.size("N - 9")
    with pytest.raises(ValueError, match="dim must be an axis of x, which has 3 axes, got 3"):
        known.size("x.shape[dim]")
    with pytest.raises(ValueError, match=r"padding must have at least 2 items, got 1"):
        known.size("padding[1]")


def test_torch_gets_the_range_of_an_axis_and_what_follows_from_it() -> None:
    """So that no computed size is 0 or 1, for which torch would trace another program."""
    parts = inputs("x: float32[N, L], taps: float32[K], ends: float32[2*N + 1]")
    spec = replace(SPEC, inputs=parts, attributes=(), outputs=outputs("y: float32[N, L - K + 1]"))
    given = {"x": Random(shape=(3, 9)), "taps": Random(shape=(4,)), "ends": Random(shape=(7,))}
    case = Case(name="c", inputs=given)
    dynamic = {"x": ("N", "L"), "taps": ("K",), "ends": ("E",)}
    assert dynamic_axes(spec, Model(name="m", dynamic=dynamic, cases=(case,))) == {
        "L": DynamicAxis(minimum=5), "K": DynamicAxis(minimum=2, maximum=8),
        "E": DynamicAxis(of="N", factor=2, offset=1),
    }  # fmt: skip
    assert dynamic_axes(SPEC, Model(name="m", cases=(case,))) == {}
