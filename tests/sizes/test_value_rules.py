"""Mistakes in the rules of values, and how a rule reads in messages, schemas and pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.declaration import published, validation
from opmatrix.sizes.values import described, described_ends, described_order, known_numbers, limits, summary
from opmatrix.spec import Override, TorchOp, ValueRule
from tests.support.ruled import ruled

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
    ("rule", "values", "order"),
    [
        (ValueRule(index_into="N"), "in [0, N)", ""),
        (ValueRule(index_into="N + 1", negative=True), "in [-(N + 1), N + 1)", ""),
        (
            ValueRule(minimum=0, maximum="N", sorted="ascending"),
            "at least 0 and at most N",
            "sorted in ascending order",
        ),
        (ValueRule(finite=True, minimum=0.5), "finite and at least 0.5", ""),
        (ValueRule(allowed=(0, 1, 4), sorted="descending", unique=True), "one of 0, 1, 4", "strictly descending"),
        (ValueRule(unique=True), "", "unique"),
    ],
)
def test_the_words_of_a_rule(rule: ValueRule, values: str, order: str) -> None:
    assert (described(rule), described_order(rule)) == (values, order)
    assert summary(replace(rule, non_empty=True)) == "; ".join(filter(None, (values, order, "at least one element")))


@pytest.mark.parametrize(
    ("rule", "words", "short"),
    [
        (OFFSETS, "start at 0 and end at N", "at least 0 and at most N; sorted in ascending order; start at 0 and end at N"),
        (
            replace(OFFSETS, sorted="descending", unique=True),
            "start at N and end at 0",
            "at least 0 and at most N; strictly descending; start at N and end at 0",
        ),
        (replace(OFFSETS, spans=False), "", "at least 0 and at most N; sorted in ascending order"),
    ],
)  # fmt: skip
def test_the_words_of_ends(rule: ValueRule, words: str, short: str) -> None:
    assert (described_ends(rule), summary(rule)) == (words, short)


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
