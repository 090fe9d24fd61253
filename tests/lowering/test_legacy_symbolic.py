"""The nodes that a lowering writes through the legacy exporter."""

from __future__ import annotations

from typing import Any

import pytest

from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs

pytestmark = pytest.mark.torch

INPUTS = (Input(name="x", type="float32"), *(Input(name=n, type="float32", optional=True) for n in ("a", "b")))


class Absent:
    def setType(self, kind: Any) -> None:  # noqa: N802 - as torch calls it
        pass


class Context:
    """In place of torch's context: records the nodes."""

    def op(self, name: str, *inputs: object, **attributes: object) -> object:
        if name == "prim::Constant":
            return Absent()
        self.inputs = ["" if isinstance(i, Absent) else i for i in inputs]
        return "result"


def written(inputs: tuple[Input, ...], *values: str | None) -> list[object]:
    from opmatrix.lowering.legacy_symbolic import LegacyGraph  # imports torch

    output = Output(name="y", type="float32", shape=SameAs(input="x"))
    onnx = OnnxOp(domain="my.domain", op_type="Mine")
    own = OpSpec(name="mine", summary="", torch=None, onnx=onnx, inputs=inputs, outputs=(output,), tolerances={})
    context = Context()
    LegacyGraph(context, 18, {}, own=own).op("my.domain::Mine", *values)
    return context.inputs


def test_absent_inputs_at_the_end_are_left_out() -> None:
    assert written(INPUTS, "x", None, None) == ["x"]
    assert written(INPUTS, "x", None, "b") == ["x", "", "b"]


def test_absent_inputs_before_a_variadic_one_are_counted() -> None:
    more = (*INPUTS, Input(name="more", type="float32", variadic=True))
    assert written(more, "x", None, None) == ["x", "", ""]
