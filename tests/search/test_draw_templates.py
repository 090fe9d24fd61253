"""Inputs drawn from cases: one size replaced wherever it occurs, listed values in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opmatrix.declaration.load import Operator
from opmatrix.search.draw_attributes import Frame
from opmatrix.search.draw_models import kept, open_sizes
from opmatrix.search.shapes import resized_shapes
from opmatrix.spec import Attribute, Case, Input, Model, OpSpec, Random, Values, shape_of
from tests.support.specs import declare

SPEC = declare(
    "segments(x: float32[N, 4, ...], of: int64, flag: float32[1]) -> y: float32 like x",
    onnx="test::Segments",
    summary="Sums.",
)
SEGMENTS = Values(values=(0, 0, 1, 3))
CASE = Case(name="only", inputs={"x": Random(shape=(4, 4, 5)), "of": SEGMENTS, "flag": Values(values=(1.0,))})
MODEL = Model(name="only", cases=(CASE,))
OPERATOR = Operator(spec=SPEC, models=(MODEL,))


def frame(old: int, new: int, case: Case = CASE) -> Frame:
    return Frame(OPERATOR, (MODEL, case), kept=True, resized={old: new})


def test_a_size_is_replaced_in_all_inputs_but_not_a_declared_number() -> None:
    assert {*open_sizes(OPERATOR, (MODEL, CASE))} == {4, 5}
    for old, new, expected in ((4, 7, ((7, 4, 5), (7,), (1,))), (5, 9, ((4, 4, 9), (4,), (1,)))):
        assert shapes(SPEC, MODEL, {old: new}) == dict(zip(("x", "of", "flag"), expected, strict=True))


def shapes(spec: OpSpec, model: Model, resized: Mapping[int, int], **attributes: int) -> Mapping[str, Any] | None:
    found = resized_shapes(spec, model, model.cases[0], {**model.attributes, **attributes}, resized)
    return found and {name: own[0] for name, own in found.items()}


def test_computed_sizes_follow() -> None:
    """An axis of 2*G has the size of no name, though another axis of the case may have the same number."""
    attribute = Attribute(name="parts", kind="int", default=1, minimum=1)
    dims = {"x": ("N", "parts*G"), "pairs": ("2*G", "N - 1"), "rows": ("N",)}
    inputs = tuple(Input(name=name, type="float32", dims=own) for name, own in dims.items())
    spec = replace(SPEC, inputs=inputs, attributes=(attribute,))
    case = {"x": Random(shape=(6, 3)), "pairs": Random(shape=(6, 5)), "rows": Random(shape=(6,))}
    model = Model(name="one", attributes={"parts": 1}, cases=(Case(name="only", inputs=case),))
    assert {*open_sizes(Operator(spec=spec, models=(model,)), (model, model.cases[0]))} == {6, 3}
    assert shapes(spec, model, {6: 2}) == {"x": (2, 3), "pairs": (6, 1), "rows": (2,)}
    assert shapes(spec, model, {3: 4}) == {"x": (6, 4), "pairs": (8, 5), "rows": (6,)}
    assert shapes(spec, model, {}, parts=5) == {"x": (6, 15), "pairs": (6, 5), "rows": (6,)}
    assert shapes(spec, model, {6: 0}) is None  # N - 1 is no size


def test_listed_values_keep_their_order() -> None:
    """Sorted ones remain so, and each is one that the case has."""
    assert kept(frame(4, 8), SPEC.inputs[1], [(8,)]) == [Values(values=(0, 0, 0, 0, 1, 1, 3, 3))]
    assert kept(frame(4, 2), SPEC.inputs[1], [(2,)]) == [Values(values=(0, 1))]
    assert kept(frame(4, 0), SPEC.inputs[1], [(0,)]) == [Values(values=())]
    rows = replace(CASE, inputs={**CASE.inputs, "of": Values(values=((0, 0), (1, 3)))})
    assert kept(frame(2, 3, rows), SPEC.inputs[1], [(3, 2)]) == [Values(values=((0, 0), (0, 0), (1, 3)))]
    assert kept(frame(2, 0, rows), SPEC.inputs[1], [(0, 2)]) is None  # () has one axis
    assert kept(frame(4, 8), SPEC.inputs[0], [(8, 4, 5)]) is None  # drawn at random in the case, too
    assert kept(frame(4, 8), SPEC.inputs[2], [(1,)]) is None  # a parameter


def test_an_expanded_layout_needs_an_axis() -> None:
    case = Case(name="only", inputs={**CASE.inputs, "of": Values(values=(2, 2, 2, 2), layout="expanded")})
    for size, layout in ((3, "expanded"), (1, "contiguous"), (0, "contiguous")):
        (made,) = kept(frame(4, size, case), SPEC.inputs[1], [(size,)]) or []
        assert (shape_of(made), made.layout) == ((size,), layout)
