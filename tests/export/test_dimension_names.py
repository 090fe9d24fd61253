"""Sizes that an exporter renames or loses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from onnx import ModelProto, TensorProto, helper

from opmatrix.export import traced
from opmatrix.export.signature import GraphSignature, Shape, ValueInfo

Found = Sequence[int | str | None] | None


def model(inputs: Sequence[Found], outputs: Sequence[Found], inner: Sequence[Found] = ()) -> ModelProto:
    def values(kind: str, shapes: Sequence[Found]) -> list[object]:
        return [helper.make_tensor_value_info(f"{kind}{n}", TensorProto.FLOAT, s) for n, s in enumerate(shapes)]

    graph = helper.make_graph([], "g", values("i", inputs), values("o", outputs), value_info=values("v", inner))
    return helper.make_model(graph)


def signature(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> GraphSignature:
    def values(kind: str, shapes: Sequence[Shape]) -> tuple[ValueInfo, ...]:
        return tuple(ValueInfo(name=f"{kind}{n}", dtype="float32", shape=s) for n, s in enumerate(shapes))

    return GraphSignature(inputs=values("i", inputs), outputs=values("o", outputs))


def shapes(values: Sequence[object]) -> list[list[int | str]]:
    return [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values]  # type: ignore[attr-defined]


def test_declared_names_replace_symbols() -> None:
    proto = model([("s0", "s1"), ("s1", 4)], [("s0", "2*s1 + s0", 4)], inner=[("s10", "s1")])
    traced.rename(proto, signature([("N", "C"), ("C", "K")], [("N", None, "K")]))
    assert shapes(proto.graph.input) == [["N", "C"], ["C", 4]]
    assert shapes(proto.graph.output) == [["N", "2*C + N", 4]], "a constant size stays"
    assert shapes(proto.graph.value_info) == [["s10", "C"]]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([("s0",), ("s1",)], [("N",), ("N",)]),  # two sizes that should be one
        ([("s0",), ("s0",)], [("N",), ("M",)]),  # one size that should be two
    ],
)
def test_an_undeclared_shape_is_left_to_the_gates(found: list[Found], wanted: list[Shape]) -> None:
    proto = traced.rename(model(found, [("s0",)]), signature(wanted, [("N",)]))
    assert shapes(proto.graph.input) == [list(f or ()) for f in found]


def test_lost_sizes_of_outputs_are_restored() -> None:
    proto = model([("N", 4)], [("Addy_dim_0", "Addy_dim_1"), None])
    traced.restore_lost(proto, signature([("N", 4)], [("N", 4), (4, "N")]))
    assert shapes(proto.graph.output) == [["N", 4], [4, "N"]]


def test_sizes_that_the_exporter_wrote_stay() -> None:
    proto = model([("N", "M")], [(3, "M"), ("a",)])
    traced.restore_lost(proto, signature([("N", "M")], [("N", "N"), ("N", "M")]))
    assert shapes(proto.graph.output) == [[3, "M"], ["N"]], "a number, a known name, and the rank"
