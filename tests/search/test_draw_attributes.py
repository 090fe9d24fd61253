"""Attributes are drawn over all that their declaration allows, and never so that an output takes gigabytes. Inputs of
an operator with many inputs are drawn at the first attempt, so that the time grows with their number. Inputs drawn
from cases: one size replaced wherever it occurs, listed values in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.scaffold.from_onnx import from_nodes
from opmatrix.search import draw_models, large, shapes
from opmatrix.search.attribute_candidates import candidates
from opmatrix.search.draw_attributes import Frame
from opmatrix.search.draw_models import kept, open_sizes
from opmatrix.search.shapes import resized_shapes
from opmatrix.spec import Attribute, Case, Dims, Input, Model, OpSpec, Output, Random, SameAs, Values, shape_of
from tests.support.specs import attribute, declare, inputs, outputs


@pytest.mark.parametrize(
    ("attribute", "wanted"),
    [
        (Attribute(name="a", kind="int", minimum=-2, maximum=1), {-2, -1, 0, 1}),
        (Attribute(name="a", kind="int", minimum=1, maximum=2**31), {1, 2, 7, 8, 9, 2**31 - 1, 2**31}),
        (Attribute(name="a", kind="int", default=3), {-8, -1, 0, 1, 3, 8, 33}),
        (Attribute(name="a", kind="float", minimum=0.0, maximum=1.0), {0.0, 0.25, 0.5, 0.75, 1.0}),
        (Attribute(name="a", kind="float", default=1e-5, minimum=0.0), {0.0, 1e-4, 1e-6, 1.0}),
        (Attribute(name="a", kind="float", default=2.0), {0.0, 2.0, -2.0, 20.0, -20.0, 0.2}),
        (Attribute(name="a", kind="string", default="x", allowed=("x", "y")), {"x", "y"}),
        (Attribute(name="a", kind="bool", default=False), {False, True}),
        (Attribute(name="a", kind="ints", default=(1, 1), minimum=1, maximum=4), {1, 2, 3, 4}),
    ],
    ids=lambda value: value.kind if isinstance(value, Attribute) else "",
)
def test_candidates(attribute: Attribute, wanted: set[Any]) -> None:
    found = candidates(attribute)
    assert wanted <= {*found}
    assert attribute.kind.endswith("s") or not any(value_mistake(attribute, value) for value in found)
    assert attribute.allowed or len(found) >= (2 if attribute.kind == "bool" else 4)


@pytest.mark.parametrize("kind", ["int", "ints"])
def test_an_optional_attribute_is_drawn_as_none_and_as_a_value(kind: Any, tmp_path: Path) -> None:
    """Also where no case has a value."""
    spec = declare(
        "f(x: float32[N]) -> y: float32[N]",
        Attribute(name="a", kind=kind, optional=True),
        onnx="test::F",
        tolerances={},
    )
    model = Model(name="m", cases=(Case(name="c", inputs={"x": Random(shape=(2,))}),))
    drawn = draw_models.collect(Operator(spec=spec, models=(model,)), examples=100, home=tmp_path)
    found = [one.attributes["a"] for one in drawn]
    absent = found.count(None)
    assert 0 < absent < len(found)
    assert not any(value_mistake(spec.attributes[0], value) for value in found)


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    [
        ("float32", ((1.0, 2), (3.0, 4.0)), None),
        ("bool", ((True, False),), None),
        ("int8", (), None),
        ("int8", ((), ()), "found the shape (2, 0), allowed: (None, 2), with any size for None"),
        ("float32", ((1.0,), (3.0, 4.0)), "allowed: nested tuples of equal length"),
        ("float32", (1.0, 2.0), "found 1 axes, allowed: 2, those of dims"),
        ("float32", (((1.0,), (2.0,)),), "found 3 axes, allowed: 2, those of dims"),
        ("float32", 1.0, "found 0 axes, allowed: 2, those of dims"),
        ("int8", ((1, 128),), "found 128 in a tensor, allowed: what int8 holds"),
        ("uint8", ((1, -1),), "found -1 in a tensor, allowed: what uint8 holds"),
        ("int64", ((1, 0.5),), "found 0.5 in a tensor, allowed: what int64 holds"),
    ],
)
def test_the_value_of_a_tensor(dtype: Any, value: Any, why: str | None) -> None:
    found = value_mistake(Attribute(name="a", kind="tensor", type=dtype, dims=(None, 2)), value)
    assert found is None if why is None else why in (found or "")


def test_an_int_without_limits_stays_near_what_the_cases_have() -> None:
    """It may be a number of loops."""
    attribute = Attribute(name="a", kind="int")
    assert max(map(abs, candidates(attribute, (-1, 2)))) == 34 and max(map(abs, candidates(attribute, (50,)))) == 100


SPEC = declare(
    "pool(x: int32[N, C]) -> y: int32[N, C, height, width]",
    attribute("height=2", minimum=1, maximum=2**31),
    attribute("width=2", minimum=1, maximum=2**31),
    attribute("level=0.25"),
    attribute("strides=(1, 2)", minimum=1, maximum=8),
    onnx="test::Pool",
    summary="Some bins.",
)
OPERATOR = Operator(
    spec=SPEC, models=(Model(name="one", cases=(Case(name="only", inputs={"x": Random(shape=(2, 3))}),)),)
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    return draw_models.collect(OPERATOR, examples=200, home=Path(tmp_path_factory.mktemp("home")))


def test_no_declared_output_is_large(drawn: list[Model]) -> None:
    """An attribute that is a size may have no limit but 2^31: its extreme would be an output of gigabytes."""
    for model in drawn:
        (x,) = case_arrays(SPEC, model, model.cases[0])
        assert shapes.elements(SPEC, [(SPEC.inputs[0], x.shape)], model.attributes) <= shapes.OUTPUT_ELEMENTS
    assert max(model.attributes["height"] for model in drawn) > 100  # type: ignore[type-var]  # an int
    sizes = shapes.elements(SPEC, [(SPEC.inputs[0], (0, 3))], {"height": 2**31, "width": 2**31})
    assert sizes == 3 * 2**62  # its strides do not fit, even if it is empty


def test_attributes_change_alone_and_together(drawn: list[Model]) -> None:
    defaults = {a.name: a.default for a in SPEC.attributes}
    changed = {tuple(n for n, v in model.attributes.items() if v != defaults[n]) for model in drawn}
    assert () in changed
    assert {(a.name,) for a in SPEC.attributes} <= changed
    assert any(len(names) > 1 for names in changed)


def test_lists_have_independent_elements_and_other_lengths(drawn: list[Model]) -> None:
    lists = {model.attributes["strides"] for model in drawn}
    assert len(lists) > 20 and {len(found) for found in lists if isinstance(found, tuple)} >= {1, 2, 3}


def test_lists_of_strings_are_few_empty_long_and_unusual(tmp_path: Path) -> None:
    names = Attribute(name="names", kind="strings", optional=True)
    spec = replace(SPEC, attributes=(names,), outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),))
    case = Case(name="of_two", inputs={"x": Random(shape=(2, 3))})
    model = Model(name="two", attributes={"names": ("b", "c")}, cases=(case,))
    drawn = draw_models.collect(Operator(spec=spec, models=(model,)), examples=200, home=tmp_path)
    lists = [one.attributes["names"] for one in drawn]
    assert None in lists and () in lists and {1, 2, 3} <= {len(found) for found in lists if isinstance(found, tuple)}
    strings = {text for found in lists if isinstance(found, tuple) for text in found}
    assert {"", "a\0b", "ä€😀", "b"} <= strings and max(len(str(text)) for text in strings) > 400


def test_lists_of_equal_elements_and_limits_are_drawn(drawn: list[Model]) -> None:
    """A kernel may have a shorter way for a window of 1 by 1, or for a size of 1, which is wrong."""
    assert sum(model.attributes["strides"] == (1, 1) for model in drawn) >= 3
    assert any(model.attributes["strides"] == (n, n) for model in drawn for n in range(2, 9))
    assert sum(model.attributes["height"] == 1 for model in drawn) >= 3


def test_windows_that_fit_are_drawn(tmp_path: Path) -> None:
    """Most random windows are larger than the images of the cases: smaller ones are drawn in their place."""
    rows = "(H + 2*padding[0] - dilation[0]*(kernel[0] - 1) - 1) // stride[0] + 1"
    columns = "(W + 2*padding[1] - dilation[1]*(kernel[1] - 1) - 1) // stride[1] + 1"
    lists = {"kernel": (None, 1), "stride": ((1, 1), 1), "padding": ((0, 0), 0), "dilation": ((1, 1), 1)}
    attributes = tuple(
        Attribute(name=name, kind="ints", default=default, minimum=low)  # type: ignore[arg-type]
        for name, (default, low) in lists.items()
    )
    image = Input(name="x", type="int32", dims=("N", "C", "H", "W"))
    windows = Output(name="y", type="int32", shape=Dims(dims=("N", "C", rows, columns)))
    spec = replace(SPEC, name="windows", inputs=(image,), attributes=attributes, outputs=(windows,))
    cases = tuple(Case(name=f"of_{n}", inputs={"x": Random(shape=(2, 3, n, n + 1))}) for n in (8, 9))
    model = Model(name="one", attributes={"kernel": (2, 3)}, cases=cases)
    operator = Operator(spec=spec, models=(model,))
    drawn = draw_models.collect(operator, examples=200, home=tmp_path)
    for name in lists:
        assert len({model.attributes[name] for model in drawn}) > 10, name
    images = [shape_of(image) for model in drawn if isinstance(image := model.cases[0].inputs["x"], Random | Values)]
    assert any(shape[:2] == (2, 3) and 1 in shape[2:] for shape in images), "an image of one row or column fits none"


def test_elements_equal_an_attribute(drawn: list[Model]) -> None:
    """An int32 input has the value of an attribute in some draws, and equal elements in others."""
    equal = ties = 0
    for model in drawn:
        (x,) = case_arrays(SPEC, model, model.cases[0])
        height = model.attributes["height"]
        equal += bool((x == height).any()) and isinstance(height, int) and height > 2
        ties += isinstance(model.cases[0].inputs["x"], Values) and x.size > 1
    assert equal >= 3 and ties >= 5


def test_an_attribute_that_is_a_size_is_drawn_beyond_16(tmp_path: Path) -> None:
    """As `n` of mmcv's operators, which is the number of points: a fault in a kernel's last block would be missed."""
    attributes = (Attribute(name="b", kind="int", minimum=0), Attribute(name="n", kind="int", minimum=1))
    spec = replace(SPEC, inputs=inputs("x: int32[b, n, 3]"), attributes=attributes, outputs=outputs("y: int32 like x"))
    case = Case(name="only", inputs={"x": Random(shape=(2, 20, 3))})
    operator = Operator(spec=spec, models=(Model(name="only", attributes={"b": 2, "n": 20}, cases=(case,)),))
    drawn = draw_models.collect(operator, examples=200, home=tmp_path, seed="b")
    far = [model for model in drawn if model.attributes["n"] > 30 and model.attributes["b"] > 0]  # type: ignore[operator]  # ints
    assert len(far) >= 5


def test_an_int_without_limits_is_drawn_beyond_32_bits(tmp_path: Path) -> None:
    """A kernel that cuts a seed to 32 bits differs there. An axis, or one with a limit, is not drawn so."""
    output = Output(name="y", type="int32", shape=SameAs(input="x", replace={"axis": 1}))
    attributes = (attribute("seed=0"), attribute("axis=-1"), attribute("count=1", minimum=0))
    spec = replace(SPEC, attributes=attributes, outputs=(output,))
    case = Case(name="only", inputs={"x": Random(shape=(3, 4))})
    operator = Operator(spec=spec, models=(Model(name="only", cases=(case,)),))
    draws = [draw_models.collect(operator, examples=200, home=tmp_path, seed=seed) for seed in ("b", "c")]
    drawn = [model for found in draws for model in found]
    found = {name: {model.attributes.get(name, 0) for model in drawn} for name in ("seed", "axis", "count")}
    assert {2**31, 2**32 + 1, -(2**31) - 1, 2**63 - 1} <= found["seed"]
    assert max(map(abs, [*found["axis"], *found["count"]])) < 2**31  # type: ignore[arg-type]  # all are ints
    for model in drawn:
        case_arrays(spec, model, model.cases[0])  # no value of an input is compared with what float64 does not hold


# At 71b51ad8, in 60 s: "64 mixed", "128 mixed" and "64" and "200 of strings" had none; the other three were right.
KINDS = {
    "64 mixed": ["float32", "int64", "bool", "string"] * 16,  # a handed example of issue 33
    "1 of strings": ["string"],
    "64 of strings": ["float32", *["string"] * 63],
    "128 mixed": ["float32", "int64", "bool", "string"] * 32,
    "64 floats": ["float32"] * 64,
    "two of strings, last": [*["int64"] * 30, "string", "string"],
    "200 of strings": ["float32", *["string"] * 200],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_input_is_drawn_at_once(kind: str, tmp_path: Path) -> None:
    inputs = [{"name": f"x{n}", "dtype": dtype, "shape": [3, 4]} for n, dtype in enumerate(KINDS[kind])]
    node = {"name": "n", "domain": "my.dom", "op_type": "Mixed", "imported": 1, "inputs": inputs, "attributes": {}}
    spec = from_nodes([node | {"outputs": [inputs[0] | {"name": "y"}]}], shown="m.onnx").spec
    case = Case(name="plain", inputs={part.name: Random(shape=(3, 4)) for part in spec.inputs})
    types = {variable: dtypes[0] for variable, dtypes in spec.types.items()}
    operator = Operator(spec=spec, models=(Model(name="static", types=types, cases=(case,)),))
    choice = large.choices(operator)[0]
    with mock.patch.object(large, "drawn_model", wraps=large.drawn_model) as drawn:
        model = draw_models.one(choice.model(operator, 1000), seed="mixed", home=tmp_path)
    assert model is not None and drawn.call_count <= 2  # hypothesis begins with the smallest


TEMPLATE = declare(
    "segments(x: float32[N, 4, ...], of: int64, flag: float32[1]) -> y: float32 like x",
    onnx="test::Segments",
    summary="Sums.",
)
SEGMENTS = Values(values=(0, 0, 1, 3))
CASE = Case(name="only", inputs={"x": Random(shape=(4, 4, 5)), "of": SEGMENTS, "flag": Values(values=(1.0,))})
MODEL = Model(name="only", cases=(CASE,))
TEMPLATES = Operator(spec=TEMPLATE, models=(MODEL,))


def frame(old: int, new: int, case: Case = CASE) -> Frame:
    return Frame(TEMPLATES, (MODEL, case), kept=True, resized={old: new})


def test_a_size_is_replaced_in_all_inputs_but_not_a_declared_number() -> None:
    assert {*open_sizes(TEMPLATES, (MODEL, CASE))} == {4, 5}
    for old, new, expected in ((4, 7, ((7, 4, 5), (7,), (1,))), (5, 9, ((4, 4, 9), (4,), (1,)))):
        assert drawn_shapes(TEMPLATE, MODEL, {old: new}) == dict(zip(("x", "of", "flag"), expected, strict=True))


def drawn_shapes(spec: OpSpec, model: Model, resized: Mapping[int, int], **attributes: int) -> Mapping[str, Any] | None:
    found = resized_shapes(spec, model, model.cases[0], {**model.attributes, **attributes}, resized)
    return found and {name: own[0] for name, own in found.items()}


def test_computed_sizes_follow() -> None:
    """An axis of 2*G has the size of no name, though another axis of the case may have the same number."""
    attribute = Attribute(name="parts", kind="int", default=1, minimum=1)
    dims = {"x": ("N", "parts*G"), "pairs": ("2*G", "N - 1"), "rows": ("N",)}
    inputs = tuple(Input(name=name, type="float32", dims=own) for name, own in dims.items())
    spec = replace(TEMPLATE, inputs=inputs, attributes=(attribute,))
    case = {"x": Random(shape=(6, 3)), "pairs": Random(shape=(6, 5)), "rows": Random(shape=(6,))}
    model = Model(name="one", attributes={"parts": 1}, cases=(Case(name="only", inputs=case),))
    assert {*open_sizes(Operator(spec=spec, models=(model,)), (model, model.cases[0]))} == {6, 3}
    assert drawn_shapes(spec, model, {6: 2}) == {"x": (2, 3), "pairs": (6, 1), "rows": (2,)}
    assert drawn_shapes(spec, model, {3: 4}) == {"x": (6, 4), "pairs": (8, 5), "rows": (6,)}
    assert drawn_shapes(spec, model, {}, parts=5) == {"x": (6, 15), "pairs": (6, 5), "rows": (6,)}
    assert drawn_shapes(spec, model, {6: 0}) is None  # N - 1 is no size


def test_listed_values_keep_their_order() -> None:
    """Sorted ones remain so, and each is one that the case has."""
    assert kept(frame(4, 8), TEMPLATE.inputs[1], [(8,)]) == [Values(values=(0, 0, 0, 0, 1, 1, 3, 3))]
    assert kept(frame(4, 2), TEMPLATE.inputs[1], [(2,)]) == [Values(values=(0, 1))]
    assert kept(frame(4, 0), TEMPLATE.inputs[1], [(0,)]) == [Values(values=())]
    rows = replace(CASE, inputs={**CASE.inputs, "of": Values(values=((0, 0), (1, 3)))})
    assert kept(frame(2, 3, rows), TEMPLATE.inputs[1], [(3, 2)]) == [Values(values=((0, 0), (0, 0), (1, 3)))]
    assert kept(frame(2, 0, rows), TEMPLATE.inputs[1], [(0, 2)]) is None  # () has one axis
    assert kept(frame(4, 8), TEMPLATE.inputs[0], [(8, 4, 5)]) is None  # drawn at random in the case, too
    assert kept(frame(4, 8), TEMPLATE.inputs[2], [(1,)]) is None  # a parameter


def test_an_expanded_layout_needs_an_axis() -> None:
    case = Case(name="only", inputs={**CASE.inputs, "of": Values(values=(2, 2, 2, 2), layout="expanded")})
    for size, layout in ((3, "expanded"), (1, "contiguous"), (0, "contiguous")):
        (made,) = kept(frame(4, size, case), TEMPLATE.inputs[1], [(size,)]) or []
        assert (shape_of(made), made.layout) == ((size,), layout)
