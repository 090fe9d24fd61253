"""Inputs drawn from cases: one size replaced wherever it occurs, listed values in their order."""

from __future__ import annotations

from opmatrix.declaration.load import Operator
from opmatrix.spec import Case, Input, Model, OnnxOp, OpSpec, Output, Random, SameAs, Tolerance, Values, shape_of
from opmatrix.testdata.draw_frame import Frame
from opmatrix.testdata.draw_templates import kept, open_sizes, resized_shape

SPEC = OpSpec(
    name="segments",
    summary="Sums.",
    torch=None,
    onnx=OnnxOp(domain="test", op_type="Segments"),
    inputs=(
        Input(name="x", type="float32", dims=("N", 4, "...")),
        Input(name="of", type="int64"),
        Input(name="flag", type="float32", dims=(1,)),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)
SEGMENTS = Values(values=(0, 0, 1, 3))
CASE = Case(name="only", inputs={"x": Random(shape=(4, 4, 5)), "of": SEGMENTS, "flag": Values(values=(1.0,))})
MODEL = Model(name="only", cases=(CASE,))
OPERATOR = Operator(spec=SPEC, models=(MODEL,))


def frame(old: int, new: int, case: Case = CASE) -> Frame:
    return Frame(OPERATOR, (MODEL, case), kept=True, resized={old: new})


def test_a_size_is_replaced_in_all_inputs_but_not_a_declared_number() -> None:
    assert {*open_sizes(OPERATOR, CASE)} == {4, 5}
    assert resized_shape(frame(4, 7), SPEC.inputs[0], (4, 4, 5)) == (7, 4, 5)
    assert resized_shape(frame(5, 9), SPEC.inputs[0], (4, 4, 5)) == (4, 4, 9)
    assert resized_shape(frame(1, 9), SPEC.inputs[2], (1,)) == (1,)


def test_listed_values_keep_their_order() -> None:
    """Sorted ones remain so, and each is one that the case has."""
    assert kept(frame(4, 8), SPEC.inputs[1]) == [Values(values=(0, 0, 0, 0, 1, 1, 3, 3))]
    assert kept(frame(4, 2), SPEC.inputs[1]) == [Values(values=(0, 1))]
    assert kept(frame(4, 0), SPEC.inputs[1]) == [Values(values=())]
    assert kept(frame(4, 8), SPEC.inputs[0]) is None  # drawn at random in the case, too
    assert kept(frame(4, 8), SPEC.inputs[2]) is None  # a parameter


def test_an_expanded_layout_needs_an_axis() -> None:
    case = Case(name="only", inputs={**CASE.inputs, "of": Values(values=(2, 2, 2, 2), layout="expanded")})
    for size, layout in ((3, "expanded"), (1, "contiguous"), (0, "contiguous")):
        (made,) = kept(frame(4, size, case), SPEC.inputs[1]) or []
        assert (shape_of(made), made.layout) == ((size,), layout)
