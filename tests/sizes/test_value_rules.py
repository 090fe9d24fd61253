"""Mistakes in the rules of values, and how a rule reads in messages, schemas and pages. `TorchOp.batch`: the axes that
it means, and declarations that cannot have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.declaration import published, validation
from opmatrix.declaration.validation.operator import declaration
from opmatrix.sizes.batch import BatchAxes, batch_axes
from opmatrix.sizes.values import described, described_ends, described_order, known_numbers, limits, summary
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, Output, Override, SameAs, TorchOp, ValueRule
from tests.support.ruled import ruled
from tests.support.specs import declare

KERNEL = {"checked_by": "kernel"}
OFFSETS = ValueRule(minimum=0, maximum="N", sorted="ascending", spans=True)
# The rule, the input's type, and the mistake.
MISTAKES = [
    ({}, "int64", "inputs[2].values: has no rule; give it a limit, or leave it out"),
    ({"maximum": 3}, "bool", "inputs[2].values.maximum: is set for 'bool' (bool), allowed: for numbers; of a bool only non_empty"),
    ({"index_into": "N", "minimum": 0}, "int64", "found index_into and minimum, allowed: one of both"),
    ({"minimum": 0}, "bool", "inputs[2].values.minimum: is set for 'bool' (bool), allowed: for numbers"),
    ({"spans": True}, "bool", "inputs[2].values.spans: is set for 'bool' (bool), allowed: for numbers"),
    ({"spans": True}, "int64", "inputs[2].values.spans: is set without sorted and minimum and maximum, allowed: with sorted=, minimum= and maximum=, which say where the values start and end"),
    ({"spans": True, "sorted": "ascending", "index_into": "N"}, "int64", "values.spans: is set without minimum and maximum, allowed: with"),
    ({"spans": True, "sorted": "ascending", "minimum": 0}, "int64", "values.spans: is set without maximum, allowed: with"),
    ({"spans": True, "minimum": 0, "maximum": "N"}, "int64", "values.spans: is set without sorted, allowed: with"),
    ({"unique": True, **KERNEL}, "bool", "inputs[2].values.unique: is set for 'bool' (bool), allowed: for numbers"),
    ({"index_into": "N", "maximum": 3}, "int64", "found index_into and maximum, allowed: one of both; an index is from 0 to the size - 1"),
    ({"index_into": "N", "allowed": (0, 1)}, "int64", "found allowed and index_into, allowed: one of both"),
    ({"minimum": 1, "allowed": (0, 1)}, "int64", "found allowed and minimum, allowed: one of both"),
    ({"negative": True, "minimum": 0}, "int64", "values.negative: is set without index_into"),
    ({"negative": True, "index_into": "N"}, "I", "values.negative: is set for uint8, int32, allowed: for signed integers"),
    ({"index_into": "N"}, "T", "values.index_into: is set for float32, float64, allowed: for integers"),
    ({"index_into": "P"}, "int64", "values.index_into: found 'P', allowed: sizes that required inputs have: N, C, M, K"),
    ({"index_into": "stride[1]"}, "int64", "values.index_into: found 'stride[1]', allowed: an element of an attribute of kind ints"),
    ({"index_into": -3}, "int64", "values.index_into: found -3, allowed: a size from 1 on, which has an index"),
    ({"maximum": "mode"}, "int64", "values.maximum: found 'mode', an attribute, allowed: one of kind int that ONNX has, not optional, with minimum= or"),
    ({"maximum": "limit"}, "int64", "values.maximum: found 'limit', which is a float, allowed: as the limit of an input of floats; 'v' is int64"),
    ({"maximum": "limit + 1"}, "T", "values.maximum: found 'limit', an attribute, allowed: one of kind int"),
    ({"maximum": "N % 2"}, "int64", "values.maximum: found 'N % 2': 'N % 2' is none of: names of sizes"),
    ({"maximum": "N // C"}, "int64", "values.maximum: found 'N // C': it divides by 'C'"),
    ({"maximum": "N +"}, "int64", "values.maximum: found 'N +': no expression"),
    ({"maximum": 0.5}, "int64", "values.maximum: found 0.5, allowed: whole numbers from -9223372036854775808 to 9223372036854775807, for int64"),
    ({"maximum": 256}, "I", "values.maximum: found 256, allowed: whole numbers from 0 to 255, for uint8"),
    ({"minimum": float("nan")}, "T", "values.minimum: found nan, allowed: finite numbers that float32 has"),
    ({"maximum": 1e60}, "T", "values.maximum: found 1e+60, allowed: finite numbers that float32 has"),
    ({"allowed": (0, 300)}, "I", "values.allowed: found 300, allowed: whole numbers from 0 to 255, for uint8"),
    ({"allowed": ()}, "int64", "values.allowed: found none, allowed: at least one value"),
    ({"allowed": (1, 1)}, "int64", "values.allowed: found (1, 1), allowed: each value once"),
    ({"finite": True}, "I", "values.finite: is set for uint8, int32, which have only finite values; leave it out"),
    ({"unique": True}, "int64", "values.unique: takes a binding more than one pass over the data; allowed: with sorted=, or with checked_by=\"kernel\""),
]  # fmt: skip


def mistakes(spec: object) -> list[str]:
    return [f"{m.field}: {m.text}" for m in validation.declaration(spec, "tied")]  # type: ignore[arg-type]


@pytest.mark.parametrize(("fields", "type", "expected"), MISTAKES, ids=[str(m[0]) for m in MISTAKES])
def test_a_mistake_in_a_rule(fields: dict[str, object], type: str, expected: str) -> None:
    (found,) = mistakes(ruled(ValueRule(**fields), type=type))  # type: ignore[arg-type]
    assert expected in found


@pytest.mark.parametrize(
    ("rule", "dims", "expected"),
    [
        (ValueRule(sorted="ascending"), (), "values.sorted: is set for 'v', which has no axis; it is about neighbours along"),
        (ValueRule(non_empty=True), ("M", 0), "values.non_empty: is set for 'v', whose dims ('M', 0) have a size of 0"),
        (ValueRule(allowed=(0, 1), unique=True, sorted="ascending"), (5,), "values.unique: found 5 values along the last axis, and only 2"),
        (ValueRule(index_into=2, negative=True, unique=True, sorted="ascending"), (5,), "values.unique: found 5 values along the last axis, and only 4"),
        (ValueRule(index_into=2, negative=True, unique=True, sorted="ascending"), (4,), ""),
        (OFFSETS, (), "values.sorted: is set for 'v', which has no axis"),
        (OFFSETS, ("M", 0), "values.spans: is set for 'v', whose dims ('M', 0) have a last axis of size 0, so that no value is the first; leave one out"),
        (OFFSETS, (0, "M"), ""),
        (OFFSETS, ("M", 1), ""),  # where N is 0
        (replace(OFFSETS, maximum=4), (1,), "values.spans: found 0 and 4 as the ends of 'v', whose dims (1,) have one element along the last axis; allowed: equal ones"),
        (replace(OFFSETS, maximum=0), (1,), ""),
    ],
)  # fmt: skip
def test_a_rule_that_no_tensor_of_the_shape_obeys(rule: ValueRule, dims: tuple[str | int, ...], expected: str) -> None:
    spec = ruled(rule)
    spec = replace(spec, inputs=(*spec.inputs[:2], replace(spec.inputs[2], dims=dims)))
    found = [one for one in mistakes(spec) if "values" in one]
    assert len(found) == bool(expected) and all(expected in one for one in found), found


@pytest.mark.parametrize(
    ("rule", "type"),
    [
        (ValueRule(index_into="N"), "int64"),
        (ValueRule(index_into="2*N + 1", negative=True, sorted="descending", unique=True), "int32"),
        (ValueRule(index_into="groups"), "I"),
        (ValueRule(minimum=0, maximum="N*C - 1"), "I"),
        (ValueRule(minimum="limit", finite=True), "T"),
        (ValueRule(maximum="N"), "T"),
        (ValueRule(maximum="x.shape[-1] + x.rank"), "int64"),
        (ValueRule(unique=True, checked_by="kernel"), "int64"),
        (ValueRule(non_empty=True), "bool"),
        (ValueRule(allowed=(-1, 0, 5)), "int8"),
        (OFFSETS, "int64"),
        (ValueRule(minimum=0.0, maximum="limit", sorted="descending", unique=True, spans=True, **KERNEL), "T"),  # type: ignore[arg-type]
    ],
)
def test_a_right_rule_has_no_mistake(rule: ValueRule, type: str) -> None:
    assert mistakes(ruled(rule, type=type)) == []


def test_nothing_checks_a_rule_without_a_kernel() -> None:
    gelu = TorchOp(name="aten::gelu", overrides=(Override(name="aten::gelu"),))
    (found,) = mistakes(ruled(ValueRule(minimum=0), runtime="contrib", torch=gelu))
    assert (
        found
        == "inputs[2].values: is set for an operator without a kernel of its own, so that nothing checks it; leave it out"
    )


@pytest.mark.parametrize(
    ("rule", "values", "order", "ends"),
    [
        (ValueRule(index_into="N"), "in [0, N)", "", ""),
        (ValueRule(index_into="N + 1", negative=True), "in [-(N + 1), N + 1)", "", ""),
        (replace(OFFSETS, spans=False), "at least 0 and at most N", "sorted in ascending order", ""),
        (OFFSETS, "at least 0 and at most N", "sorted in ascending order", "start at 0 and end at N"),
        (replace(OFFSETS, sorted="descending", unique=True), "at least 0 and at most N", "strictly descending",
         "start at N and end at 0"),
        (ValueRule(finite=True, minimum=0.5), "finite and at least 0.5", "", ""),
        (ValueRule(allowed=(0, 1, 4), sorted="descending", unique=True), "one of 0, 1, 4", "strictly descending", ""),
        (ValueRule(unique=True), "", "unique", ""),
    ],
)  # fmt: skip
def test_the_words_of_a_rule(rule: ValueRule, values: str, order: str, ends: str) -> None:
    words = (values, order, ends)
    assert (described(rule), described_order(rule), described_ends(rule)) == words
    assert summary(rule) == "; ".join(filter(None, words))
    more = "; ".join(filter(None, (*words, "at least one element")))
    assert summary(replace(rule, non_empty=True)) == more


def test_limits_are_numbers_for_given_sizes_and_attributes() -> None:
    spec = ruled(ValueRule(index_into="N*groups", negative=True))
    x, _, v = spec.inputs
    numbers = known_numbers(spec, [(x, (3, 4)), (v, (1, 1))], {"groups": -2})
    assert numbers == {"N": 3, "groups": -2}
    found = limits(ValueRule(index_into="N*groups", negative=True), numbers)
    assert (found.minimum, found.maximum) == (6, -7), "which no value has"
    rule = ValueRule(minimum="limit", maximum="groups")
    found = limits(rule, known_numbers(ruled(rule), [(x, (3, 4)), (v, (1, 1))], {"groups": -2}))
    assert (found.minimum, found.maximum) == (0.5, -2)


def test_a_rule_that_changes_is_another_published_schema(tmp_path: Path) -> None:
    rule = ValueRule(index_into="N")
    kept = published.schema(ruled(rule), 1)
    assert kept["inputs"]["v"]["values"] == {"index_into": "N"}
    assert "values" not in kept["inputs"]["x"], "published schemas without rules stay as they are"
    assert published.differences(kept, ruled(rule), tmp_path) == []
    (found,) = published.differences(kept, ruled(replace(rule, sorted="ascending")), tmp_path)
    assert found.field == "inputs['v'].values"
    assert found.text.startswith(
        "version 1 is published with {'index_into': 'N'}, found {'index_into': 'N', 'sorted': 'ascending'}. Models and"
    )
    (found,) = published.differences(
        published.schema(ruled(replace(OFFSETS, spans=False)), 1), ruled(OFFSETS), tmp_path
    )
    assert (
        "'sorted': 'ascending'}, found {'minimum': 0, 'maximum': 'N', 'sorted': 'ascending', 'spans': True}"
        in found.text
    )


def spec(inputs: Sequence[Input], shape: Any, batch: str, **fields: Any) -> OpSpec:
    shapes = shape if isinstance(shape, list) else [shape]
    made = declare(
        "conv",
        *inputs,
        *(Output(name=f"y{n}", type="float32", shape=one) for n, one in enumerate(shapes)),
        torch=TorchOp(name="my::conv", batch=batch),
        onnx="my.domain::MyConv",
        summary="Any.",
    )
    return replace(made, **fields)


def part(name: str, *dims: str | int, **fields: Any) -> Input:
    return Input(name=name, type="float32", dims=dims or None, **fields)


X = part("x", "N", "C", "H")
W = part("w", "C", "K")
FREE = part("x", "...", "C")


@pytest.mark.parametrize(
    ("made", "inputs", "outputs"),
    [
        (spec([X, W], SameAs(input="x"), "N"), {"x": 0}, (0,)),
        (spec([X, W], Dims(dims=("K", "N", "H - 1")), "N"), {"x": 0}, (1,)),
        (spec([X, part("m", same_as="x")], [SameAs(input="m"), Dims(dims=("N",))], "N"), {"x": 0, "m": 0}, (0, 0)),
        (spec([part("x", "C", "N")], SameAs(input="x", replace={0: None}), "N"), {"x": 1}, (0,)),
        (spec([part("x", "C", "N")], SameAs(input="x", replace={-2: 3}), "N"), {"x": 1}, (1,)),
        (spec([part("x", "C", "...", "N")], SameAs(input="x", replace={0: None}), "N"), {"x": -1}, (-1,)),
        (spec([part("x", "...", "N", "C")], SameAs(input="x", replace={-1: None}), "N"), {"x": -2}, (-1,)),
        (spec([FREE, W], SameAs(input="x", replace={-1: "K"}), "..."), {"x": 0}, (0,)),
        (spec([FREE, part("m", "C", "...", further_as="x")], SameAs(input="m"), "..."), {"x": 0, "m": 1}, (1,)),
        (spec([part("x"), W], SameAs(input="x"), "..."), {"x": 0}, (0,)),
        (spec([part("x", "C", "...")], SameAs(input="x", replace={0: None}), "..."), {"x": 1}, (0,)),
    ],
)  # fmt: skip
def test_the_axis_of_each_tensor(made: OpSpec, inputs: dict[str, int], outputs: tuple[int, ...]) -> None:
    assert list(declaration(made, "conv")) == []
    assert made.torch
    assert batch_axes(made) == BatchAxes(inputs=inputs, outputs=outputs, is_added=made.torch.batch == "...")


AXIS = (Attribute(name="dim", kind="int", default=0),)
AXES_MISTAKES = {
    "no such axis": (
        spec([X, W], SameAs(input="x"), "M"),
        "found 'M', and no required input has such an axis, allowed: N, C, H, K",
    ),
    "an attribute": (
        spec([part("x", "N", "groups")], SameAs(input="x"), "groups",
             attributes=(Attribute(name="groups", kind="int", default=1, minimum=1),)),
        "found 'groups', and no required input has such an axis, allowed: N",
    ),
    "numbers": (spec([part("x", 3)], SameAs(input="x"), "3"), "allowed: none: they have no named size"),
    "twice": (spec([part("x", "N", "N")], SameAs(input="x"), "N"), "the input 'x' has it twice, allowed: once"),
    "at": (
        spec([part("x", "N", "C", at={"dim": 4})], SameAs(input="x"), "N", attributes=AXIS),
        "an attribute names an axis of the input 'x', which may be this one; remove it",
    ),
    "index_into": (
        spec([X, Input(name="i", type="int64", dims=("C",), values=ValueRule(index_into="2*N"))], SameAs(input="x"),
             "N"),
        "'2*N' depends on it, so that no index is computed alone; remove it",
    ),
    "sorted": (
        spec([part("x", "C", "N", values=ValueRule(sorted="ascending"))], SameAs(input="x"), "N"),
        "the rule for the values of 'x' (sorted, unique, spans) is along this axis; remove it",
    ),
    "each its own": (
        spec([FREE, part("m", "...")], SameAs(input="x"), "..."),
        "'x' and 'm' have a '...' each, allowed: with further_as='x', or same_as",
    ),
    "the rank": (
        spec([part("x", "...", "C", rank="R"), part("p", "2*R")], SameAs(input="x"), "..."),
        "'2*R' depends on it, so that no index is computed alone; remove it",
    ),
    "the product": (
        spec([FREE], Dims(dims=("...", "prod(...)")), "..."),
        "'prod(...)' depends on it, so that no index is computed alone; remove it",
    ),
    "an output without it": (
        spec([X, W], [SameAs(input="x"), Dims(dims=("C",))], "N"),
        "the output 'y1' has the sizes ('C',); allowed where each output has the axis",
    ),
    "an output of another input": (
        spec([X, W], SameAs(input="w"), "N"), "the output 'y0' has the shape of 'w', which has no such axis; allowed"
    ),
    "a replaced axis": (
        spec([X], SameAs(input="x", replace={-3: 1}), "N"),
        "the output 'y0' has another axis in place of -3 of 'x', which may be this one; allowed",
    ),
    "an axis that an attribute names": (
        spec([X], SameAs(input="x", replace={"dim": 1}), "N", attributes=AXIS),
        "the output 'y0' has another axis in place of 'dim' of 'x', which may be this one; allowed",
    ),
    "one of the further axes": (
        spec([part("x", "N", "...")], SameAs(input="x", replace={1: 1}), "..."),
        "the output 'y0' has another axis in place of 1 of 'x', which may be this one; allowed",
    ),
    "the kernel decides": (
        spec([X], FromKernel(dims=("N", "E")), "N"),
        "the output 'y0' has a size that the kernel decides, for all indices together; allowed",
    ),
    "of torch": (
        spec([X], SameAs(input="x"), "N", torch=TorchOp(name="aten::x", overrides=(Override(name="aten::x"),),
             batch="N")),
        "allowed without torch.overrides: torch has the batching rule of its own operator",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", AXES_MISTAKES)
def test_a_batch_that_cannot_be_one_is_refused(mistake: str) -> None:
    made, expected = AXES_MISTAKES[mistake]
    found = [m.text for m in declaration(made, "conv") if m.field == "torch.batch"]
    assert len(found) == 1 and expected in found[0], found


def test_a_declaration_without_one() -> None:
    assert batch_axes(spec([X], SameAs(input="x"), "")) is None
    assert batch_axes(replace(spec([X], SameAs(input="x"), ""), torch=None)) is None
