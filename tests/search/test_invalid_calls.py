"""Calls that a declaration forbids, derived from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.data.reference import Argument
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.search.invalid_calls import invalid_calls, valid_call

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
