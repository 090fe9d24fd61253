"""Inputs made larger: along which axes, and that what the reference rejects is not used. verify asks the kernel. Calls
that a declaration forbids, derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays
from opmatrix.data.reference import Argument, Reference
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.search.drawn import reference_outputs
from opmatrix.search.invalid_calls import invalid_calls, valid_call
from opmatrix.search.larger_inputs import ENOUGH, Compute, enlarge, growing, large_pair
from opmatrix.spec import Case, Dims, Input, Model, OpSpec, Output, Random, ValueRule, Values
from tests.support.projects import with_reference
from tests.support.specs import declare, inputs, outputs

SPEC = declare(
    "grown(x: float32[N, C, ...], weight: float32[C, C]?, like: float32 like x, free: int64) -> y: float32[N]",
    summary="Sums rows.",
)
CASE = Case(
    name="plain",
    inputs={
        "x": Random(shape=(2, 3, 4)),
        "weight": Random(shape=(3, 3)),
        "like": Random(shape=(2, 3, 4)),
        "free": Random(shape=(5,)),
    },
)
MODEL = Model(name="plain", cases=(CASE,))


def computed(paths: Paths, spec: OpSpec, model: Model) -> Compute:
    reference = Reference(paths, spec)
    return lambda arrays: reference_outputs(spec, model, reference, arrays)[0]


def grown(root: Path, reference: str) -> list[Array]:
    paths = with_reference(root, "grown", f"import numpy as np\ndef grown(x, weight, like, free):\n    {reference}\n")
    return [*enlarge(SPEC, MODEL, CASE, case_arrays(SPEC, MODEL, CASE), computed(paths, SPEC, MODEL))][-1]


def test_axes_of_one_name_grow_together() -> None:
    assert [dict(axes) for axes in growing(SPEC)] == [
        {"x": (0,), "like": (0,)},
        {"x": (1,), "weight": (0, 1), "like": (1,)},
        {"x": (2,), "like": (2,)},
        {"free": (0,)},
    ]


def test_the_first_size_that_the_reference_takes_grows(tmp_path: Path) -> None:
    x, weight, like, free = grown(tmp_path, "return x.sum((1, 2))")
    assert x.shape == like.shape and x.shape[1:] == (3, 4) and x.size + like.size >= ENOUGH
    assert weight.shape == (3, 3) and free.shape == (5,)
    before = case_arrays(SPEC, MODEL, CASE)[0]
    np.testing.assert_array_equal(x[:: len(x) // 2], before)  # repeated in order


@pytest.mark.parametrize("limit", ["len(x) == 2 and x.shape[1] == 3", "x.size < 30 and weight.size < 10"])
def test_what_the_reference_refuses_is_not_used(tmp_path: Path, limit: str) -> None:
    x, weight, _, free = grown(tmp_path, f"assert {limit}; return x.reshape(len(x), -1).sum(1)")
    assert x.shape[:2] == (2, 3) and weight.shape == (3, 3)
    assert free.size >= ENOUGH or x.size >= ENOUGH // 4


def test_names_that_are_tied_grow_together(tmp_path: Path) -> None:
    """No name can grow alone where a size is computed from two."""
    tied = (Input(name="x", type="float32", dims=("A", "N + 4 - A")), Input(name="weight", type="float32", dims=("N",)))
    spec = replace(SPEC, inputs=tied, outputs=(Output(name="y", type="float32", shape=Dims(dims=("A", "N + 4 - A"))),))
    case = Case(name="tied", inputs={"x": Random(shape=(3, 4)), "weight": Random(shape=(3,))})
    model = Model(name="tied", cases=(case,))
    reference = "def grown(x, weight):\n    assert x.shape == (len(weight), 4); return x\n"
    paths = with_reference(tmp_path, "grown", reference)
    before = case_arrays(spec, model, case)
    x, weight = [*enlarge(spec, model, case, before, computed(paths, spec, model))][-1]
    assert x.size + weight.size >= ENOUGH // 4 and x.shape == (len(weight), 4)
    np.testing.assert_array_equal(x[:: len(x) // 3], before[0])


def test_offsets_end_at_the_larger_size(tmp_path: Path) -> None:
    offsets = Input(
        name="offsets", type="int64", dims=("S", "R + 1"),
        values=ValueRule(minimum=0, maximum="N", sorted="descending", spans=True),
    )  # fmt: skip
    spec = replace(
        SPEC,
        inputs=(Input(name="x", type="float32", dims=("N",)), offsets),
        outputs=(Output(name="y", type="float32", shape=Dims(dims=("R",))),),
    )
    case = Case(name="tied", inputs={"x": Random(shape=(4,)), "offsets": Values(values=((4, 2, 0), (4, 4, 0)))})
    model = Model(name="tied", cases=(case,))
    reference = "def grown(x, offsets):\n    assert (offsets[:, 0] == len(x)).all(); return x[:offsets.shape[1] - 1]\n"
    before = case_arrays(spec, model, case)
    paths = with_reference(tmp_path, "grown", reference)
    made = [*enlarge(spec, model, case, before, computed(paths, spec, model))]
    x, found = made[-1]
    assert len(x) >= ENOUGH - 6 and found.tolist() == [[len(x), 2, 0], [len(x), 4, 0]]
    assert before[1].tolist() == [[4, 2, 0], [4, 4, 0]], "the arrays of the case stay as they are"


def test_sorted_floats_are_not_reversed(tmp_path: Path) -> None:
    """The binding would refuse the other values."""
    knots = Input(name="x", type="float32", dims=("N",), values=ValueRule(sorted="ascending"))
    spec = replace(SPEC, inputs=(knots,), outputs=(Output(name="y", type="float32", shape=Dims(dims=("N",))),))
    case = Case(name="tied", inputs={"x": Random(shape=(4,))})
    model = Model(name="tied", cases=(case,))
    paths = with_reference(tmp_path, "grown", "def grown(x):\n    return x\n")
    first, second = large_pair(spec, model, case, case_arrays(spec, model, case), computed(paths, spec, model))
    assert all((np.diff(x) >= 0).all() for (x,) in (first, second)) and first[0].size > second[0].size


def test_a_slow_reference_ends_it(tmp_path: Path) -> None:
    slow = "sum(i * i for i in range(200_000)); return x.sum((1, 2))"
    assert grown(tmp_path, slow)[0].shape == (8, 3, 4)


def pair(root: Path, reference: str) -> list[list[Array]]:
    paths = with_reference(root, "grown", f"import numpy as np\ndef grown(x, weight, like, free):\n    {reference}\n")
    return large_pair(SPEC, MODEL, CASE, case_arrays(SPEC, MODEL, CASE), computed(paths, SPEC, MODEL))


def test_two_inputs_with_other_values_in_the_same_places(tmp_path: Path) -> None:
    first, second = pair(tmp_path, "return x.sum((1, 2))")
    np.testing.assert_array_equal(first[0].ravel(), second[0].ravel()[::-1])
    np.testing.assert_array_equal(first[3], second[3])  # indices stay where they are
    assert second[0].flags.c_contiguous


def test_two_sizes_where_the_reference_refuses_other_values(tmp_path: Path) -> None:
    begin = float(case_arrays(SPEC, MODEL, CASE)[0].flat[0])
    first, second = pair(tmp_path, f"assert abs(x.flat[0] - {begin}) < 1e-6; return x.sum((1, 2))")
    assert first[0].size > second[0].size > 24 and first[0].flat[0] == second[0].flat[0]


def test_nothing_where_the_reference_refuses_all_that_is_larger(tmp_path: Path) -> None:
    assert pair(tmp_path, "assert x.size < 30 and weight.size < 10 and free.size < 6; return x.sum((1, 2))") == []


def test_nothing_is_computed_whose_output_is_too_large(tmp_path: Path) -> None:
    """The output has a million elements, and of the smallest larger input more than are allowed."""
    given = inputs("x: float32[N], y: float32[C]")
    spec = replace(SPEC, name="outer", inputs=given, outputs=outputs("z: float32[N, C]"))
    case = Case(name="outer", inputs={"x": Random(shape=(1000,)), "y": Random(shape=(1000,))})
    model, tried = Model(name="outer", cases=(case,)), list[int]()

    def compute(arrays: Sequence[Array]) -> Sequence[Array] | None:
        tried.append(math.prod(array.size for array in arrays))
        return [np.zeros(tried[-1], np.float32)]

    assert [*enlarge(spec, model, case, case_arrays(spec, model, case), compute)] == []
    assert tried == []


DERIVED = {
    "group_norm": """
        dtype of x: int32; dtype of x: bool; rank of x: (3,);
        dtype of num_groups: float16; dtype of num_groups: int32;
        rank of num_groups: (1, 1); rank of num_groups: (); size of num_groups: (2,);
        dtype of scale: int32; dtype of scale: bool; dtype of scale: float64;
        rank of scale: (2, 1); rank of scale: (); size of scale: (3,);
        dtype of bias: int32; dtype of bias: bool; dtype of bias: float64;
        rank of bias: (2, 1); rank of bias: (); size of bias: (3,);
        value of epsilon: nan; value of epsilon: -1
    """,
    "dual_residual": """
        dtype of x: int32; dtype of x: bool; dtype of y: int32; dtype of y: bool; dtype of y: float64;
        rank of y: (1, 3, 4, 5, 1); size of y: (2, 3, 4, 5)
    """,
    "gelu": "dtype of x: float16; dtype of x: int32; value of approximate: no_such_none",
}


@pytest.mark.parametrize("name", DERIVED)
def test_the_derived_calls(name: str, root: Path) -> None:
    found = list(invalid_calls(load_operator(Paths(root), name)))
    assert "; ".join(map(str, found)) == " ".join(DERIVED[name].split())


COMPUTED = """
    rank of x: (); rank of weight: (6, 1); rank of weight: (); size of weight: (7,);
    rank of factors: (6, 6, 1); rank of factors: (6,); size of factors: (7, 6); size of factors: (6, 7);
    rank of counts: (4, 1); rank of counts: (); size of counts: (0,);
    rank of pads: (4, 1); rank of pads: (); size of pads: (5,);
    rank of first: (3, 1); rank of first: (); rank of second: (3, 3, 1); rank of second: (3,);
    size of second: (4, 3); size of second: (3, 4);
    value of dim: 2; value of groups: 4; value of k: -1; value of k: 6;
    value of padding: -1; value of padding: 4; value of padding: ();
    value of stride: 0; value of stride: 4; value of stride: ();
    value of dilation: 0; value of dilation: 4; value of dilation: ()
"""


def test_one_wrong_size_for_each_that_is_computed(root: Path) -> None:
    """Also for one that only optional inputs have, an axis that is none, and a list that is too short."""
    found = invalid_calls(load_operator(Paths(root / "tests/projects/sizes"), "strided"))
    assert "; ".join(str(one) for one in found if one.kind != "dtype") == " ".join(COMPUTED.split())


def forms(argument: Argument) -> list[tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of each tensor of an argument."""
    arrays = argument if isinstance(argument, tuple) else () if argument is None else (argument,)
    return [(str(a.dtype), a.shape) for a in arrays]


def test_a_call_differs_from_a_valid_one_in_one_argument(root: Path) -> None:
    operator = load_operator(Paths(root), "nms")
    right = valid_call(operator)
    assert len(forms(right.inputs[4])) == 2, "the case that gives most inputs"
    for one in invalid_calls(operator):
        both = zip(operator.spec.inputs, one.call.inputs, right.inputs, strict=True)
        differing = [part.name for part, given, before in both if forms(given) != forms(before)]
        given, before = one.call.model.attributes, right.model.attributes
        differing += [a.name for a in operator.spec.attributes if given[a.name] != before[a.name]]
        assert differing == [one.part.name], one
    (last,) = [one for one in invalid_calls(operator) if str(one) == "size of factors: (13,)"]
    assert forms(last.call.inputs[4]) == [("float32", (12,)), ("float32", (13,))]
