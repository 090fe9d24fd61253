"""`TorchOp.batch`: the axes that it means, and declarations that cannot have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from opmatrix.declaration.validation.operator import declaration
from opmatrix.sizes.batch import BatchAxes, batch_axes
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, Output, Override, SameAs, TorchOp, ValueRule
from tests.support.specs import declare


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
MISTAKES = {
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


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_batch_that_cannot_be_one_is_refused(mistake: str) -> None:
    made, expected = MISTAKES[mistake]
    found = [m.text for m in declaration(made, "conv") if m.field == "torch.batch"]
    assert len(found) == 1 and expected in found[0], found


def test_a_declaration_without_one() -> None:
    assert batch_axes(spec([X], SameAs(input="x"), "")) is None
    assert batch_axes(replace(spec([X], SameAs(input="x"), ""), torch=None)) is None
