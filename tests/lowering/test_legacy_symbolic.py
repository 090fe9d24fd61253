"""The nodes that a lowering writes through the legacy exporter."""

from __future__ import annotations

import io
from typing import Any

import onnx
import pytest

from opmatrix.spec import Input, OnnxOp, Output, SameAs, TorchOp
from tests.support.specs import declare

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
    from opmatrix.lowering.legacy import LegacyGraph  # imports torch

    output = Output(name="y", type="float32", shape=SameAs(input="x"))
    onnx = OnnxOp(domain="my.domain", op_type="Mine")
    own = declare("mine", *inputs, output, onnx=onnx, tolerances={})
    context = Context()
    LegacyGraph(context, 18, {}, own=own).op("my.domain::Mine", *values)
    return context.inputs


def test_absent_inputs_at_the_end_are_left_out() -> None:
    assert written(INPUTS, "x", None, None) == ["x"]
    assert written(INPUTS, "x", None, "b") == ["x", "", "b"]


def test_absent_inputs_before_a_variadic_one_are_counted() -> None:
    more = (*INPUTS, Input(name="more", type="float32", variadic=True))
    assert written(more, "x", None, None) == ["x", "", ""]


def test_a_node_with_the_name_of_its_torch_operator() -> None:
    """torch looks for a function of onnxscript at the version of the domain, and would refuse the model without one."""
    import torch

    from opmatrix.export.exporter_warnings import collected
    from opmatrix.lowering.call import Lowered
    from opmatrix.lowering.legacy import _registry, registered

    onnx_op, torch_op = OnnxOp(domain="same_name", op_type="twice", versions=(1, 2)), TorchOp(name="same_name::twice")
    inputs, output = INPUTS[:1], Output(name="y", type="float32", shape=SameAs(input="x"))
    own = declare("twice", *inputs, output, torch=torch_op, onnx=onnx_op, tolerances={})
    library = torch.library.Library("same_name", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CPU")

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.same_name.twice(x)

    lowered = Lowered(spec=own, lowering="custom", function=lambda g, x: g.op("same_name::twice", x))
    for version in (1, 2):
        file, versions = io.BytesIO(), {"same_name": version}
        with collected(), registered(lowered, 17, versions, ["same_name::twice"]):
            torch.onnx.export(
                Twice(),
                (torch.ones(2),),
                file,
                opset_version=17,
                custom_opsets=versions,
                dynamo=False,  # type: ignore[arg-type]  # a file object
            )
        (node,) = onnx.load_model_from_string(file.getvalue()).graph.node
        assert (node.domain, node.op_type) == ("same_name", "twice")
        assert _registry().get_function_group("same_name::twice") is None


def test_an_operator_whose_name_ends_with_an_underscore_beside_the_one_without() -> None:
    """torch asks for the symbolic function of f for both."""
    import torch

    from opmatrix.export.exporter_warnings import collected
    from opmatrix.lowering.call import Lowered
    from opmatrix.lowering.legacy import _registry, registered

    library = torch.library.Library("pair", "DEF")
    output = Output(name="y", type="float32", shape=SameAs(input="x"))
    lowered = []
    for name, op_type in (("f", "Without"), ("f_", "With")):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x + x, "CPU")
        own = declare(
            op_type.lower(), *INPUTS[:1], output, torch=f"pair::{name}", onnx=f"pair::{op_type}", tolerances={}
        )
        node = f"pair::{op_type}"
        lowered.append(Lowered(spec=own, lowering="custom", function=lambda g, x, node=node: g.op(node, x)))

    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.pair.f(torch.ops.pair.f_(x))

    file, domain = io.BytesIO(), {"pair": 1}
    with collected(), registered(lowered[0], 17, domain, ["pair::f"]), registered(lowered[1], 17, domain, ["pair::f_"]):
        torch.onnx.export(Both(), (torch.ones(2),), file, opset_version=17, custom_opsets=domain, dynamo=False)  # type: ignore[arg-type]  # a file object
    assert [node.op_type for node in onnx.load_model_from_string(file.getvalue()).graph.node] == ["With", "Without"]
    assert _registry().get_function_group("pair::f") is None
