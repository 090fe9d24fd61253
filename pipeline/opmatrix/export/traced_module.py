"""The module that both exporters trace, its input, and the removal of metadata. Needs torch and onnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx import ModelProto

from opmatrix.declaration.dynamic_axes import DynamicAxis, dynamic_axes
from opmatrix.declaration.model_inputs import case_arguments
from opmatrix.declaration.torch_signature import is_mutable
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.lowering.call_lowering import Lowered
from opmatrix.lowering.graph import qualified
from opmatrix.torch_library.call import as_called_by_others

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
    """Return the exporter's input for one model of an operator."""
    into, out = expected.signature.inputs, expected.signature.outputs
    return ExporterInput(
        module=operator_module(expected),
        inputs=inputs,
        lowered=[generated.lowered(expected.lowering)],
        opset=expected.cell.opset,
        versions=expected.versions,
        input_names=[v.name for v in into],
        output_names=[v.name for v in out],
        axes=[v.axes for v in into],
        output_axes=[v.axes for v in out],
        related=dynamic_axes(expected.spec, expected.model),
    )


def operator_module(expected: ExpectedModel) -> OperatorModule:
    """Return the module that a model is exported from, in evaluation mode, with the attributes as constants."""
    spec, model = expected.spec, expected.model
    operator = as_called_by_others(spec, model)
    # Outside of compute, which is traced: torch 2.6 traces few iterators.
    indices = list(case_arguments(spec, model.cases[0], range(len(expected.signature.inputs))))

    kept = [n for n, output in enumerate(spec.outputs) if output.name not in model.absent] if model.absent else []

    def compute(*inputs: torch.Tensor) -> Any:
        given = [[inputs[i] for i in n] if isinstance(n, tuple) else None if n is None else inputs[n] for n in indices]
        made = model.around(operator, *given) if model.around else operator(*given)
        if not kept:
            return made
        found = [made[n] for n in kept]
        return found if len(found) > 1 else found[0]

    return OperatorModule(compute).eval()


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
