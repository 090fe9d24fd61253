"""The module that both exporters trace, its input, and the removal of metadata. Needs torch and onnx.

Give the dynamic axes of a model the declared names, if an exporter leaves its own. Needs onnx alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx import ModelProto, TensorShapeProto

from opmatrix.declaration.models import DynamicAxis, case_arguments, dynamic_axes
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.signature import ExpectedModel, GraphSignature
from opmatrix.lowering.call import Lowered
from opmatrix.lowering.graph import qualified
from opmatrix.signature.signature import is_mutable
from opmatrix.torch_ops.call import as_called_by_others

Tensors = tuple[torch.Tensor, ...]


class OperatorModule(torch.nn.Module):
    """A module around one function of the model's inputs."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.compute(*inputs)


@dataclass(frozen=True, kw_only=True)
class ExporterInput:
    """A module, the inputs that it is traced with, and the lowerings of the operators that it calls.

    `versions` are those of custom domains. `axes` has the names of each input's dynamic axes by index, `output_axes`
    those of each output, if known. `related` has the axes that have a range, or follow from others.
    """

    module: torch.nn.Module
    inputs: Tensors
    lowered: Sequence[Lowered]
    opset: int
    versions: Mapping[str, int]
    input_names: Sequence[str]
    output_names: Sequence[str]
    axes: Sequence[Mapping[int, str]]
    output_axes: Sequence[Mapping[int, str]] = ()
    related: Mapping[str, DynamicAxis] = field(default_factory=dict)


def exporter_input(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ExporterInput:
    """Return the exporter's input for one model of an operator: a module in evaluation mode, with the attributes as
    constants."""
    spec, model = expected.spec, expected.model
    into, out = expected.signature.inputs, expected.signature.outputs
    operator = as_called_by_others(spec, model)
    # Outside of compute, which is traced: torch 2.6 traces few iterators.
    indices = list(case_arguments(spec, model.cases[0], range(len(into))))
    kept = [n for n, output in enumerate(spec.outputs) if output.name not in model.absent] if model.absent else []

    def compute(*inputs: torch.Tensor) -> Any:
        given = [[inputs[i] for i in n] if isinstance(n, tuple) else None if n is None else inputs[n] for n in indices]
        outputs = model.around(operator, *given) if model.around else operator(*given)
        if not kept:
            return outputs
        present = [outputs[n] for n in kept]
        return present if len(present) > 1 else present[0]

    return ExporterInput(
        module=OperatorModule(compute).eval(),
        inputs=inputs,
        lowered=[generated.lowered(expected.lowering)],
        opset=expected.cell.opset,
        versions=expected.versions,
        input_names=[v.name for v in into],
        output_names=[v.name for v in out],
        axes=[v.axes for v in into],
        output_axes=[v.axes for v in out],
        related=dynamic_axes(spec, model),
    )


def leave_out(proto: ModelProto, expected: ExpectedModel) -> ModelProto:
    """Remove the names of the optional outputs that a model does not have: exporters name every output of a node, and
    the dynamo exporter tells their shapes."""
    graph = proto.graph
    used = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    unused = set()
    for node in graph.node if expected.model.absent else ():
        if qualified(node) == expected.node:
            unused |= {*node.output} - used
            names = [name if name in used else "" for name in node.output]
            while names and not names[-1]:
                names.pop()
            node.output[:] = names
    for value in [value for value in graph.value_info if value.name in unused]:
        graph.value_info.remove(value)
    return proto


def without_copies(proto: ModelProto, expected: ExpectedModel) -> ModelProto:
    """Remove the copies of the arguments that an operator writes: the dynamo exporter of torch 2.6 keeps them."""
    if not is_mutable(expected.spec):
        return proto
    outputs = {value.name for value in proto.graph.output}
    copies = [n for n in proto.graph.node if n.op_type == "Identity" and n.output[0] not in outputs]
    names = {node.output[0]: node.input[0] for node in copies}
    for node in copies:
        proto.graph.node.remove(node)
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return proto


def strip(proto: ModelProto) -> ModelProto:
    """Remove metadata and doc strings: they contain absolute paths, and equal models must have equal bytes."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return proto


_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def rename(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Rename the exporter's symbols, also within expressions; the inputs have the symbol of each declared name.

    Leaves a model unchanged if symbols and names do not correspond one to one: the gates reject it.
    """
    names: dict[str, str] = {}
    for value, wanted in zip(proto.graph.input, signature.inputs, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, wanted.shape, strict=False):
            if isinstance(size, str) and dim.dim_param and names.setdefault(dim.dim_param, size) != size:
                return proto
    if len({*names.values()}) == len(names):
        values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
        for dim in (dim for value in values for dim in value.type.tensor_type.shape.dim if dim.dim_param):
            dim.dim_param = _SYMBOL.sub(lambda symbol: names.get(symbol[0], symbol[0]), dim.dim_param)
    return proto


def restore_lost(proto: ModelProto, signature: GraphSignature) -> ModelProto:
    """Write the declared sizes of outputs that have no shape or an invented name; leave all others to the gates."""
    known = {size for value in signature.inputs for size in value.shape}
    for value, wanted in zip(proto.graph.output, signature.outputs, strict=True):
        shape = value.type.tensor_type.shape
        if not value.type.tensor_type.HasField("shape"):
            shape.dim.extend(TensorShapeProto.Dimension() for _ in wanted.shape)
        for dim, size in zip(shape.dim, wanted.shape, strict=False):
            if size is None or dim.HasField("dim_value") or dim.dim_param in known:
                continue
            if isinstance(size, int):
                dim.dim_value = size
            else:
                dim.dim_param = size
    return proto
