"""What both exporters trace, and how both models are cleaned: one function of the inputs, and no metadata.

Needs torch and onnx.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from onnx import ModelProto

from opmatrix.declaration.model_inputs import case_arguments, graph_inputs
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.lowering.call_lowering import Lowered
from opmatrix.torch_library.call import torch_attributes, torch_operator

Tensors = tuple[torch.Tensor, ...]


class OperatorModule(torch.nn.Module):
    """A module that computes one function of the model's inputs."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.compute(*inputs)


@dataclass(frozen=True, kw_only=True)
class ExporterInput:
    """A module, what it is traced with, and the lowerings of the operators that it calls.

    `versions` are those of custom domains, `axes` the names of each input's dynamic axes, by number, and `output_axes`
    of each output's, as far as known.
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


def exporter_input(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ExporterInput:
    """Return what an exporter makes the demanded model of."""
    into, out = expected.signature.inputs, expected.signature.outputs
    axes, output_axes = (
        [{n: size for n, size in enumerate(v.shape) if isinstance(size, str)} for v in values] for values in (into, out)
    )
    return ExporterInput(
        module=operator_module(expected),
        inputs=inputs,
        lowered=[generated.lowered(expected.lowering)],
        opset=expected.cell.opset,
        versions=expected.versions,
        input_names=[v.name for v in into],
        output_names=[v.name for v in out],
        axes=axes,
        output_axes=output_axes,
    )


def operator_module(expected: ExpectedModel) -> OperatorModule:
    """Return the module that a model is exported from, in evaluation mode. Its attributes are constants."""
    spec, model = expected.spec, expected.model
    operator = functools.partial(torch_operator(spec), **torch_attributes(spec, model))
    # Found out beforehand: what runs within compute is traced, and torch 2.6 knows little of iterators.
    places = list(case_arguments(spec, model.cases[0], range(len(graph_inputs(spec, model, model.cases[0])))))

    def compute(*inputs: torch.Tensor) -> Any:
        given = [[inputs[i] for i in p] if isinstance(p, tuple) else None if p is None else inputs[p] for p in places]
        return model.around(operator, *given) if model.around else operator(*given)

    return OperatorModule(compute).eval()


def strip(proto: ModelProto) -> ModelProto:
    """Remove metadata and doc strings: they hold absolute paths, and equal models must have equal bytes."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return proto
