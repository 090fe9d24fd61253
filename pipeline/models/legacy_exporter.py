"""The legacy exporter, by way of TorchScript. Needs torch and onnx."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import onnx
import torch
from onnx import ModelProto

from pipeline.library import torch_versions
from pipeline.lowering import legacy as symbolics
from pipeline.models import dimension_names, targets
from pipeline.models.demand import Demand
from pipeline.models.glue import Glue
from pipeline.models.traced import OperatorModule, Tensors, dynamic, operator_module, strip
from pipeline.spec import FromKernel


def export(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Export through TorchScript."""
    declared = demand.signature
    file = io.BytesIO()
    lowered = glue.lowered(demand.lowering)
    with symbolics.registered(lowered, demand.cell.opset, demand.versions, targets.names(demand.spec)), quiet():
        torch.onnx.export(
            operator_module(demand),
            inputs,
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            **chosen(),
            opset_version=demand.cell.opset,
            custom_opsets=dict(demand.versions),
            input_names=[v.name for v in declared.inputs],
            output_names=[v.name for v in declared.outputs],
            dynamic_axes={v.name: axes for v in (*declared.inputs, *declared.outputs) if (axes := dynamic(v.shape))},
        )
    return strip(_sized(onnx.load_model_from_string(file.getvalue()), demand))


def chosen() -> dict[str, Any]:
    """Return what makes torch.onnx.export this exporter: torch 2.9 changed the default."""
    return {"dynamo": False} if torch_versions.DYNAMO_ARGUMENT.here else {}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what an exporter prints to itself, where it prints without a reason."""
    if torch_versions.QUIET_EXPORT.here:
        yield
        return
    with redirect_stdout(io.StringIO()):
        yield


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module."""
    with quiet():
        torch.onnx.export(module, inputs, io.BytesIO(), opset_version=17, **chosen())  # type: ignore[arg-type]  # as above


def _sized(proto: ModelProto, demand: Demand) -> ModelProto:
    """Write the sizes that the lowering set, where this exporter drops them: it does so with all outputs of a node of
    which one has no size that is known: the kernel decides it, or it is dynamic. The gates hold them against onnx's own
    inference."""
    if not torch_versions.TYPED_RESULTS.here:
        return dimension_names.for_lost_ones(proto, demand.signature)
    several = len(demand.spec.outputs) > 1 and any(
        not isinstance(s, int) for v in demand.signature.outputs for s in v.shape
    )
    if several or any(isinstance(output.shape, FromKernel) for output in demand.spec.outputs):
        for value, declared in zip(proto.graph.output, demand.signature.outputs, strict=True):
            for dim, size in zip(value.type.tensor_type.shape.dim, declared.shape, strict=False):
                if isinstance(size, int):
                    dim.dim_value = size
    return proto
