"""Drawn shapes obey what a declaration ties, and are independent where it ties nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import DataError
from opmatrix.declaration.load import Operator
from opmatrix.declaration.validation.cases import cases
from opmatrix.declaration.validation.sizes import sizes
from opmatrix.search import draw_models
from opmatrix.search import shapes as output_sizes
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    Dims,
    Input,
    Model,
    OpSpec,
    Output,
    Random,
    SameAs,
    shape_of,
    tensors_of,
)
from tests.support.specs import declare

Shapes = Mapping[str, Sequence[tuple[int, ...]]]
DRAWS = 200


def spec(inputs: Sequence[Input], *attributes: Attribute, shape: SameAs | Dims) -> OpSpec:
    made = declare("drawn", *inputs, *attributes, Output(name="y", type="float32", shape=shape), summary="Drawn.")
    assert not list(sizes(made))
    return made


def drawn(declared: OpSpec, folder: Path) -> list[tuple[Shapes, Mapping[str, AttributeValue]]]:
    """Return the shapes and attributes of the drawn models."""
    operator = Operator(spec=declared, models=())
    models = draw_models.collect(operator, examples=DRAWS, home=folder)
    return [(_shapes(declared, model), model.attributes) for model in models]


def _shapes(declared: OpSpec, model: Model) -> Shapes:
    return {i.name: [shape_of(tensor) for tensor in tensors_of(model.cases[0], i.name)] for i in declared.inputs}


def float32(name: str, *dims: str | int, optional: bool = False) -> Input:
    return Input(name=name, type="float32", dims=dims, optional=optional)


def window(size: str, axis: int, taps: str) -> str:
    return f"({size} + 2*padding[{axis}] - dilation[{axis}]*({taps} - 1) - 1) // stride[{axis}] + 1"


HEIGHT, WIDTH = window("H", 0, "KH"), window("W", 1, "KW")
# torchvision.ops.deform_conv2d 0.28, whose operator checks what `deformable` checks below.
DEFORMABLE = spec(
    [
        float32("input", "N", "groups*CG", "H", "W"),
        float32("weight", "groups*OG", "CG", "KH", "KW"),
        float32("offset", "N", "2*offset_groups*KH*KW", HEIGHT, WIDTH),
        float32("mask", "N", "offset_groups*KH*KW", HEIGHT, WIDTH, optional=True),
        float32("bias", "groups*OG", optional=True),
    ],
    Attribute(name="groups", kind="int", default=1, minimum=1, maximum=4),
    Attribute(name="offset_groups", kind="int", default=1, minimum=1, maximum=4),
    Attribute(name="stride", kind="ints", default=(1, 1), minimum=1, maximum=3),
    Attribute(name="padding", kind="ints", default=(0, 0), minimum=0, maximum=3),
    Attribute(name="dilation", kind="ints", default=(1, 1), minimum=1, maximum=3),
    shape=Dims(dims=("N", "groups*OG", HEIGHT, WIDTH)),
)


def deformable(
    shapes: Shapes,
    *,
    groups: int,
    offset_groups: int,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> bool:
    """Return whether torchvision takes these shapes."""
    (n, channels, *sizes), (o, per_group, *taps) = shapes["input"][0], shapes["weight"][0]
    out = []
    for size, count, step, pad, apart in zip(sizes, taps, stride, padding, dilation, strict=True):
        out.append(math.floor((size + 2 * pad - (apart * (count - 1) + 1)) / step) + 1)
    return (
        channels == per_group * groups
        and o % groups == 0
        and min(out) >= 0
        and shapes["offset"][0] == (n, 2 * offset_groups * math.prod(taps), *out)
        and all(mask == (n, offset_groups * math.prod(taps), *out) for mask in shapes["mask"])
        and all(bias == (o,) for bias in shapes["bias"])
    )


def test_a_deformable_convolution(tmp_path: Path) -> None:
    found = drawn(DEFORMABLE, tmp_path)
    taken = [shapes for shapes, attributes in found if deformable(shapes, **attributes)]  # type: ignore[arg-type]  # declared
    assert len(found) > 0.9 * DRAWS and len(taken) == len(found)
    assert len({str(shapes) for shapes in taken}) >= 30


def test_a_segment_sum(tmp_path: Path) -> None:
    declared = spec([float32("data", "N", "C"), float32("offsets", "S + 1")], shape=Dims(dims=("S", "C")))
    found = drawn(declared, tmp_path)
    assert len(found) > 0.9 * DRAWS and len({str(shapes) for shapes, _ in found}) >= 30
    lengths = {shapes["offsets"][0][0] for shapes, _ in found}
    assert 0 not in lengths and len(lengths) > 5


def test_an_axis_that_an_attribute_names(tmp_path: Path) -> None:
    """Every axis of every drawn rank, from both ends, within the limits of the attribute."""
    axis = Attribute(name="axis", kind="int", default=0, minimum=-2)
    x = Input(name="x", type="float32", dims=("...", "C"), rank="R")
    inputs = [x, float32("along", "x.shape[axis]"), float32("pads", "2*R")]
    found = drawn(spec(inputs, axis, shape=SameAs(input="x", replace={"axis": None})), tmp_path)
    for shapes, attributes in found:
        (x_shape,), (along,), (pads,) = shapes["x"], shapes["along"], shapes["pads"]
        value = attributes["axis"]
        assert isinstance(value, int) and along == (x_shape[value],) and pads == (2 * len(x_shape),)
    values = {attributes["axis"] for _, attributes in found}
    assert values >= {-2, -1, 0, 1, 2} and -3 not in values


def boxes() -> OpSpec:
    """N boxes of 4 numbers, these along the axis that an attribute names."""
    axis = Attribute(name="axis", kind="int", default=-1, minimum=-2, maximum=1)
    tied = replace(float32("boxes", "A", "N + 4 - A"), at={"axis": 4})
    return spec([tied, float32("scores", "N")], axis, shape=SameAs(input="scores"))


def test_the_size_of_an_axis_that_an_attribute_names(tmp_path: Path) -> None:
    found = drawn(boxes(), tmp_path)
    assert len(found) > 0.9 * DRAWS and len({str(shapes) for shapes, _ in found}) >= 30
    for shapes, attributes in found:
        (shape,), (scores,), axis = shapes["boxes"], shapes["scores"], attributes["axis"]
        assert isinstance(axis, int) and shape[axis] == 4 and shape[-1 - axis] == scores[0]
    assert {attributes["axis"] for _, attributes in found} == {-2, -1, 0, 1}


@pytest.mark.parametrize(("shape", "axis", "problem"), [
    ((4, 3), -2, None),
    ((3, 4), -2, "found shape (3, 4), allowed: ('A', 'N + 4 - A'), where axis -2 is 4"),
    ((3, 5), 1, "found shape (3, 5), allowed: ('A', 'N + 4 - A'), where N + 4 - A is 4"),
])  # fmt: skip
def test_a_case_with_another_size(shape: tuple[int, ...], axis: int, problem: str | None) -> None:
    inputs = {"boxes": Random(shape=shape), "scores": Random(shape=(3,))}
    model = Model(name="one", attributes={"axis": axis}, cases=(Case(name="only", inputs=inputs),))
    found = [mistake.text for mistake in cases(boxes(), (model,))]
    assert found[:1] == ([problem] if problem else []), found


@pytest.mark.parametrize("dims", [None, ("...",)], ids=["any", "further"])
def test_shapes_that_nothing_ties_are_independent(dims: tuple[str, ...] | None, tmp_path: Path) -> None:
    """A kernel that takes the second input's shape for that of the first reads out of bounds: see the search."""
    inputs = [Input(name=name, type="float32", dims=dims) for name in ("x", "y")]
    found = drawn(spec(inputs, shape=SameAs(input="x")), tmp_path)
    different = sum(shapes["x"] != shapes["y"] for shapes, _ in found)
    assert different > 0.4 * len(found) > different - len(found) * 0.5
    assert any(shapes["x"] == shapes["y"] for shapes, _ in found), "an operator may need equal ones"


def test_no_output_is_large(tmp_path: Path) -> None:
    """sanitize took 7.6 GB for an output of inputs that were small."""
    count = Attribute(name="count", kind="int", default=1, minimum=0, maximum=10**6)
    declared = spec([float32("x", "N")], count, shape=Dims(dims=("N", "count", "count")))
    for shapes, attributes in drawn(declared, tmp_path):
        times = attributes["count"]
        assert isinstance(times, int) and shapes["x"][0][0] * times**2 <= output_sizes.OUTPUT_ELEMENTS


@pytest.mark.parametrize("dims", [("N", 3, 64, 64), (768, 768, "N"), ("32*j", "128*k")], ids=str)
def test_large_numbers_in_sizes(dims: tuple[str | int, ...], tmp_path: Path) -> None:
    """A limit of 4096 elements left empty inputs alone, or none at all."""
    found = [shapes["x"][0] for shapes, _ in drawn(spec([float32("x", *dims)], shape=SameAs(input="x")), tmp_path)]
    assert len(found) > 0.4 * DRAWS and sum(math.prod(shape) > 0 for shape in found) > 0.25 * len(found)
    assert len({*found}) > 1


def test_a_declaration_that_allows_no_input(tmp_path: Path) -> None:
    message = "the declaration allows no input that the search can draw, with at most 4096 elements in each. Correct"
    with pytest.raises(DataError, match=message):
        drawn(spec([float32("x", 4096, 4096)], shape=SameAs(input="x")), tmp_path)


def test_sizes_that_two_inputs_share(tmp_path: Path) -> None:
    """Of "...", in any rank, also of an input that may be absent, with a size of its own on either side."""
    index = Input(name="index", type="float32", dims=("...", "M"), further_as="x")
    mask = Input(name="mask", type="float32", dims=(2, "..."), further_as="x", optional=True)
    declared = spec([float32("x", "...", "N"), index, mask], shape=Dims(dims=("...", "M")))
    found = [shapes for shapes, _ in drawn(declared, tmp_path)]
    assert len(found) > 0.9 * DRAWS and len({str(shapes) for shapes in found}) >= 30
    assert all(shapes["x"][0][:-1] == shapes["index"][0][:-1] for shapes in found)
    assert all(mask == (2, *shapes["x"][0][:-1]) for shapes in found for mask in shapes["mask"])
    assert any(shapes["x"][0][-1] != shapes["index"][0][-1] for shapes in found)


def test_an_attribute_alone_is_a_size_of_an_input(tmp_path: Path) -> None:
    groups = Attribute(name="groups", kind="int", default=1, minimum=1, maximum=4)
    found = drawn(spec([float32("x", "groups", "C")], groups, shape=Dims(dims=("C",))), tmp_path)
    assert all(shapes["x"][0][0] == attributes["groups"] for shapes, attributes in found)
    assert {attributes["groups"] for _, attributes in found} == {1, 2, 3, 4}


def test_sizes_of_optional_inputs_are_tied_to_each_other(tmp_path: Path) -> None:
    inputs = [float32("x", "N"), float32("a", "Q", optional=True), float32("b", 3, "Q", optional=True)]
    found = [shapes for shapes, _ in drawn(spec(inputs, shape=SameAs(input="x")), tmp_path)]
    both = [shapes for shapes in found if shapes["a"] and shapes["b"]]
    assert len(both) > 20 and all(shapes["b"][0][1] == shapes["a"][0][0] for shapes in both)


def test_any_shape_has_up_to_five_axes(tmp_path: Path) -> None:
    found = drawn(spec([Input(name="x", type="float32")], shape=SameAs(input="x")), tmp_path)
    assert {len(shapes["x"][0]) for shapes, _ in found} == {0, 1, 2, 3, 4, 5}
