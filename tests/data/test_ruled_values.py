"""Random values obey the rules of inputs, other values must, and forbidden ones break a rule in one way each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import ruled_values
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays
from opmatrix.data.ruled_values import random_values
from opmatrix.declaration.load import Operator
from opmatrix.search import draw_models
from opmatrix.search.broken_rules import broken, kinds
from opmatrix.search.invalid_calls import invalid_calls, missing_calls
from opmatrix.spec import Case, DType, Model, Random, Tensor, ValueRule, Values
from tests.support.ruled import ruled

NUMBERS = {"N": 5, "C": 3, "M": 4, "K": 6, "groups": 2, "limit": 0.1}
OFFSETS = ValueRule(minimum=0, maximum="N", sorted="ascending", spans=True)
RULES: list[tuple[ValueRule, DType]] = [
    (ValueRule(index_into="N"), "int64"),
    (ValueRule(index_into="N", negative=True), "int8"),
    (ValueRule(index_into="10*N", sorted="ascending"), "uint8"),
    (ValueRule(index_into="10*N", sorted="descending", unique=True), "int32"),
    (ValueRule(index_into="10*N", unique=True, checked_by="kernel"), "int64"),
    (ValueRule(index_into=6, unique=True, checked_by="kernel"), "int64"),
    (ValueRule(minimum=3), "uint16"),
    (ValueRule(maximum=-3, sorted="ascending"), "int8"),
    (ValueRule(minimum=2**63 - 4), "int64"),
    (ValueRule(minimum=2**63 + 1), "uint64"),
    (ValueRule(maximum=2 - 2**63), "int64"),
    (ValueRule(sorted="ascending"), "int64"),
    (ValueRule(sorted="ascending", unique=True), "float32"),
    (ValueRule(minimum=0.1, maximum=0.3), "float32"),
    (ValueRule(minimum=0.1, maximum=0.3), "float16"),
    (ValueRule(minimum=0.1, maximum=0.3, finite=True), "bfloat16"),
    (ValueRule(allowed=(0.1, 0.2, 1.0)), "bfloat16"),
    (ValueRule(maximum="limit", sorted="descending", unique=True), "bfloat16"),
    (ValueRule(minimum=0.1, maximum=0.3, finite=True), "float8_e5m2"),
    (ValueRule(maximum="limit", sorted="descending", unique=True), "float8_e5m2fnuz"),
    (ValueRule(minimum=1.0, maximum=1.0 + 1e-15, sorted="descending", unique=True), "float64"),
    (ValueRule(maximum="limit"), "float32"),
    (ValueRule(minimum=0, finite=True), "float64"),
    (ValueRule(allowed=(4, -1, 0)), "int32"),
    (ValueRule(allowed=(0.1, 0.5), sorted="descending"), "float32"),
    (ValueRule(non_empty=True), "bool"),
    (OFFSETS, "int64"),
    (OFFSETS, "uint8"),
    (replace(OFFSETS, maximum="2*K", unique=True), "int32"),
    (replace(OFFSETS, minimum="groups", maximum=2**63 - 2, sorted="descending"), "int64"),
    (replace(OFFSETS, maximum="limit"), "float32"),
    (replace(OFFSETS, minimum=-1.0, maximum=1, sorted="descending", unique=True), "float64"),
]
SPREADS = ((0.0, 1.0), (0.0, 10.0), (-1000.0, 0.0), (1000.0, 0.0), (0.0, 0.0))


def values(rule: ValueRule, dtype: DType, *, mean: float = 0.0, deviation: float = 1.0, rows: int = 4) -> Array:
    tensor = Random(shape=(rows, 6), mean=mean, deviation=deviation)
    return random_values(tensor, rule, NUMBERS, dtype, seed_of=f"{mean} {deviation}")


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (ValueRule(sorted="ascending"), {np.inf, -np.inf}),
        (ValueRule(sorted="descending"), {np.inf, -np.inf}),
        (ValueRule(minimum=0.0), {np.inf}),
        (ValueRule(maximum="limit"), {-np.inf}),
        (ValueRule(non_empty=True), {np.inf, -np.inf}),
        (ValueRule(finite=True), set()),
        (ValueRule(sorted="ascending", finite=True), set()),
    ],
    ids=str,
)
def test_the_infinities_that_a_rule_allows_are_drawn(rule: ValueRule, wanted: set[float], tmp_path: Path) -> None:
    spec = ruled(rule, type="T")
    drawn = draw_models.collect(Operator(spec=spec, models=()), examples=100, home=tmp_path)
    arrays = [case_arrays(spec, model, model.cases[0])[2] for model in drawn]
    found = {float(n) for array in arrays for n in array.ravel() if np.isinf(n)}
    assert found == wanted


def problem(rule: ValueRule, array: Array) -> str:
    spec = ruled(rule)
    return ruled_values.problem(spec, spec.inputs[2], NUMBERS, array)


@pytest.mark.parametrize(("rule", "dtype"), RULES, ids=str)
def test_random_values_obey(rule: ValueRule, dtype: DType) -> None:
    for mean, deviation in SPREADS:
        found = values(rule, dtype, mean=mean, deviation=deviation)
        assert (found.dtype, found.shape) == (np.dtype(dtype), (4, 6))
        assert problem(rule, found) == "", found
    assert values(rule, dtype, rows=0).shape == (0, 6)


def test_random_values_reach_both_ends_and_are_spread_between_them() -> None:
    rule = ValueRule(index_into="N")
    assert {*values(rule, "int64", rows=40).flat} == {0, 1, 2, 3, 4}
    counts = np.bincount(values(rule, "int64", rows=4000).ravel())
    assert counts.min() > 0.9 * counts.mean(), "uniform"
    ends = np.bincount(values(rule, "int64", deviation=50.0, rows=400).ravel())
    assert ends[[0, 4]].sum() > 0.9 * ends.sum()
    assert {*values(rule, "int64", mean=1000.0, deviation=0.0).flat} == {4}
    assert {*values(rule, "int64", mean=-1000.0, deviation=0.0).flat} == {0}
    real = values(ValueRule(minimum=-1.0, maximum=3.0), "float64", deviation=50.0, rows=400)
    assert (real.min(), real.max()) == (-1.0, 3.0)


def test_offsets_have_empty_segments_at_both_ends_and_between() -> None:
    """0 to N, with equal neighbours first, last and in the middle, and without."""
    found = np.concatenate([values(OFFSETS, "int64", deviation=deviation, rows=200) for deviation in (1.0, 10.0)])
    lengths = np.diff(found, axis=1)
    assert (found[:, 0] == 0).all() and (found[:, -1] == 5).all()
    empty = lengths == 0
    for segment in range(5):
        assert 40 < empty[:, segment].sum() < 360, segment
    assert (~empty).all(axis=1).any() and (empty.sum(axis=1) == 4).any(), "none and all but one of them are empty"
    assert {*values(OFFSETS, "int64", mean=-1000.0, deviation=0.0)[0, :-1].tolist()} == {0}
    assert {*values(OFFSETS, "int64", mean=1000.0, deviation=0.0)[0, 1:].tolist()} == {5}
    nothing = random_values(Random(shape=(3,)), OFFSETS, NUMBERS | {"N": 0}, "int64", seed_of="")
    assert nothing.tolist() == [0, 0, 0], "of nothing"
    assert random_values(Random(shape=(1,)), OFFSETS, NUMBERS | {"N": 0}, "int64", seed_of="").tolist() == [0]


# The rule, wrong values of v in a case, and the message.
WRONG = [
    (ValueRule(index_into="N"), ((0, 5),), "must be in [0, N) with N = 5 as in x, got 5 at (0, 1)"),
    (ValueRule(index_into="N"), ((-1, 0),), "must be in [0, N) with N = 5 as in x, got -1 at (0, 0)"),
    (ValueRule(index_into="K", negative=True), ((0, -3),), "must be in [-K, K) with K = 2, got -3 at (0, 1)"),
    (ValueRule(minimum="groups"), ((2, 1),), "must be at least groups with groups = 2, got 1 at (0, 1)"),
    (ValueRule(allowed=(0, 4)), ((0, 3),), "must be one of 0, 4, got 3 at (0, 1)"),
    (ValueRule(sorted="ascending"), ((1, 2), (2, 1)), "must be sorted in ascending order along its last axis, got 1 at (1, 1)"),
    (ValueRule(sorted="descending", unique=True), ((2, 2),), "must be strictly descending along its last axis, got 2 at (0, 1)"),
    (ValueRule(unique=True, checked_by="kernel"), ((1, 0, 1),), "must be unique along its last axis, got 1 at (0, 2)"),
    (OFFSETS, ((0, 4),), "must start at 0 and end at N along its last axis with N = 5 as in x, got 4 at (0, 1)"),
    (OFFSETS, ((0, 5), (1, 5)), "must start at 0 and end at N along its last axis with N = 5 as in x, got 1 at (1, 0)"),
    (OFFSETS, ((0, 6),), "must be at least 0 and at most N with N = 5 as in x, got 6 at (0, 1)"),
    (replace(OFFSETS, sorted="descending"), ((5, 1),), "must start at N and end at 0 along its last axis with N = 5 as in x, got 1 at (0, 1)"),
    (ValueRule(non_empty=True), (), "must have at least one element, got shape (0, 2)"),
]  # fmt: skip


def arrays(rule: ValueRule, tensor: Tensor, *, n: int = 5, type: DType = "int64") -> list[Array]:
    inputs = {"x": Random(shape=(n, 2)), "i": Random(shape=(n,), mean=9.0), "v": tensor}
    case = Case(name="case", inputs=inputs)
    return case_arrays(
        ruled(rule, type=type), Model(name="model", types={"T": "float32", "I": "int32"}, cases=(case,)), case
    )


@pytest.mark.parametrize(("rule", "given", "message"), WRONG)
def test_values_of_a_case_that_break_a_rule_are_a_mistake(
    rule: ValueRule, given: tuple[int, ...], message: str
) -> None:
    tensor = Values(values=given) if given else Random(shape=(0, 2))
    with pytest.raises(DataError, match="input 'v': ") as caught:
        arrays(rule, tensor)
    assert str(caught.value) == f"input 'v': {message}"


def test_a_special_that_breaks_a_rule_is_a_mistake() -> None:
    with pytest.raises(DataError, match=r"must be finite, got nan at \(0, 1\)"):
        arrays(ValueRule(finite=True), Random(shape=(1, 2), specials={1: float("nan")}), type="float64")


def test_what_no_value_can_obey_is_a_mistake() -> None:
    with pytest.raises(DataError, match=r"no value is in \[0, N\): that is 0 to -1 here, and the shape \(1, 2\) has 2"):
        arrays(ValueRule(index_into="N"), Random(shape=(1, 2)), n=0)
    with pytest.raises(DataError, match="6 values along the last axis cannot differ: only 5 are allowed"):
        arrays(ValueRule(index_into="N", unique=True, checked_by="kernel"), Random(shape=(1, 6)))
    with pytest.raises(
        DataError, match="one value along the last axis cannot start at 0 and end at N: that is 0 and 5 here"
    ):
        arrays(OFFSETS, Random(shape=(2, 1)))
    with pytest.raises(DataError, match=r"must have at least one element along its last axis, got shape \(2, 0\)"):
        arrays(OFFSETS, Random(shape=(2, 0)))
    with pytest.raises(DataError, match=r"300.* does not fit uint8"):
        arrays(OFFSETS, Random(shape=(2, 3)), n=300, type="uint8")
    assert arrays(ValueRule(index_into="N"), Random(shape=(3, 0)), n=0)[2].size == 0
    assert arrays(OFFSETS, Random(shape=(0, 3)))[2].size == 0


@pytest.mark.parametrize(("rule", "dtype"), RULES, ids=str)
def test_forbidden_values_break_a_rule_in_one_way(rule: ValueRule, dtype: DType) -> None:
    right = values(rule, dtype)
    found = [*broken(rule, NUMBERS, right)]
    assert {kind for kind, _, _ in found} | {"empty"} == kinds(rule, right) | {"empty"}
    for kind, shown, array in found:
        assert problem(rule, array), (kind, shown)
        assert array.shape == right.shape
        if rule.spans and kind in ("unordered", "repeated"):
            assert (array[:, [0, -1]] == right[:, [0, -1]]).all(), "a check of the ends does not find it"
        if kind in ("starting late", "ending early"):
            assert problem(replace(rule, spans=False), array) == "", "only a check of the ends finds it"
            continue
        assert (array != right).sum() <= (2 if kind == "unordered" else 1), "as few elements as possible"


def operator(rule: ValueRule, *, v: Tensor) -> Operator:
    inputs = {"x": Random(shape=(5, 2)), "i": Random(shape=(5,), mean=9.0), "v": v}
    case = Case(name="case", inputs=inputs)
    model = Model(name="model", types={"T": "float32", "I": "int32"}, cases=(case,))
    return Operator(spec=ruled(rule), models=(model,), published=(), handwritten_files=frozenset())


def test_the_calls_that_break_a_rule() -> None:
    rule = ValueRule(index_into="N", sorted="ascending", non_empty=True)
    found = [str(one) for one in invalid_calls(operator(rule, v=Values(values=((0, 1), (2, 3)))))]
    assert found[-6:] == [
        "v below: -1 at (0, 0)",
        "v below: -9223372036854775808 at (0, 0)",
        "v above: 5 at (1, 1)",
        "v above: 9223372036854775807 at (1, 1)",
        "v unordered: 0 after 3 at (1, 1)",
        "v empty: no elements",
    ]


def test_the_calls_that_break_offsets() -> None:
    offsets = replace(OFFSETS, minimum="groups")
    found = [str(one) for one in invalid_calls(operator(offsets, v=Values(values=((2, 2, 5, 5), (2, 2, 3, 5)))))]
    assert found[-8:] == [
        "v below: 1 at (0, 0)",
        "v below: -9223372036854775808 at (0, 0)",
        "v above: 6 at (1, 3)",
        "v above: 9223372036854775807 at (1, 3)",
        "v unordered: 2 after 5 at (1, 2)",
        "v starting late: 3 at (1, 0)",
        "v ending early: 4 at (0, 3)",
        "v empty: no elements along the last axis",
    ]
    last = [
        one.call.inputs[2] for one in invalid_calls(operator(offsets, v=Values(values=((2, 2, 5, 5), (2, 2, 3, 5)))))
    ][-4:]
    assert [np.asarray(one).tolist() for one in last] == [
        [[2, 2, 5, 5], [2, 5, 2, 5]],
        [[2, 2, 5, 5], [3, 3, 3, 5]],
        [[2, 2, 4, 4], [2, 2, 3, 5]],
        [[], []],
    ]


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        (OFFSETS, ((0, 0, 2, 5),), ""),
        (OFFSETS, ((0, 2, 5),), "unordered. Add a case with four elements along its last axis, of which the first and the last differ"),
        (replace(OFFSETS, maximum=0), ((0, 0, 0, 0),), "unordered or starting late or ending early. Add a case with four elements along"),
        (replace(OFFSETS, unique=True), ((0, 2, 3, 5),), ""),
        (replace(OFFSETS, unique=True), ((0, 1, 3, 5),), "starting late. Add a case with two elements along its last axis, of which the first and the last differ, and no other is next to them in value"),
    ],
)  # fmt: skip
def test_a_case_that_allows_no_forbidden_offsets(rule: ValueRule, given: tuple[int, ...], message: str) -> None:
    found = [*missing_calls(operator(rule, v=Values(values=given)))]
    assert len(found) == bool(message) and all(message in one for one in found), found


def test_between_two_ends_nothing_is_unordered() -> None:
    """A declared last axis of three elements."""
    made = operator(OFFSETS, v=Values(values=((0, 1, 5),)))
    *others, v = made.spec.inputs
    spec = replace(made.spec, inputs=(*others, replace(v, dims=("M", 3))))
    assert [*missing_calls(replace(made, spec=spec))] == []


@pytest.mark.parametrize("variadic", [False, True])
@pytest.mark.parametrize(
    ("dims", "shape"), [(None, (0, 1, 2)), (("...",), (0, 1, 2)), ((2, "...", 2), (2, 0, 2)), (("M", 1, 2), (0, 1, 2))]
)
def test_an_input_of_any_shape_is_emptied(
    dims: tuple[str | int, ...] | None, shape: tuple[int, ...], variadic: bool
) -> None:
    """A rule that no empty tensor obeys, of an input without a size that has a name, and of several tensors."""
    given = Values(values=(((0, 1),), ((2, 3),)))
    made = operator(ValueRule(non_empty=True), v=given)
    *others, v = made.spec.inputs
    spec = replace(made.spec, inputs=(*others, replace(v, dims=dims, variadic=variadic)))
    (model,) = made.models
    case = replace(model.cases[0], inputs={**model.cases[0].inputs, "v": (given, given) if variadic else given})
    made = replace(made, spec=spec, models=(replace(model, cases=(case,)),))
    assert [*missing_calls(made)] == []
    (emptied,) = (one.call.inputs[2] for one in invalid_calls(made) if one.kind == "empty")
    tensors = emptied if isinstance(emptied, tuple) else (emptied,)
    shared = shape if dims and "M" in dims else (2, 1, 2)  # of the tensors before the last one
    assert [np.shape(one) for one in tensors if one is not None] == [shared, shape][-len(tensors) :]


def test_a_case_that_allows_no_forbidden_call_is_not_passed_over() -> None:
    rule = ValueRule(index_into="N", sorted="ascending")
    assert [*missing_calls(operator(rule, v=Values(values=((0, 1),))))] == []
    (found,) = missing_calls(operator(rule, v=Values(values=((3,), (2,)))))
    assert found == (
        "tied: no case with 1 to 4096 elements in each input can be changed to one whose v is unordered. Add a case "
        "with two different elements along its last axis"
    )
    absent = replace(operator(rule, v=Values(values=((3,), (2,)))), models=())
    assert "has v. Add one" in next(missing_calls(absent))
