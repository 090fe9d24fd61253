"""What both exporters trace, and how both models are cleaned: one function of the inputs, and no metadata.

Needs torch and onnx.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from onnx import ModelProto

from pipeline.feeds import case_arguments, feeds
from pipeline.library.torch_call import torch_attributes, torch_operator
from pipeline.models.demand import Demand
from pipeline.models.value_info import Shape

Tensors = tuple[torch.Tensor, ...]


class OperatorModule(torch.nn.Module):
    """A module that computes one function of the model's inputs."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.compute(*inputs)


def operator_module(demand: Demand) -> OperatorModule:
    """Return the module that a model is exported from, in evaluation mode. Its attributes are constants."""
    spec, model = demand.spec, demand.model
    operator = functools.partial(torch_operator(spec), **torch_attributes(spec, model))
    # Found out beforehand: what runs within compute is traced, and torch 2.6 knows little of iterators.
    places = list(case_arguments(spec, model.cases[0], range(len(feeds(spec, model, model.cases[0])))))

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


def dynamic(shape: Shape) -> dict[int, str]:
    """Return the names of the axes whose size is open."""
    return {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
