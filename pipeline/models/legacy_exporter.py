"""The legacy exporter, by way of TorchScript. Needs torch and onnx."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any

import onnx
import torch
from onnx import ModelProto

from pipeline.library import torch_versions
from pipeline.lowering import legacy as symbolics
from pipeline.lowering.arguments import Lowered
from pipeline.models import dimension_names, targets
from pipeline.models.demand import Demand
from pipeline.models.glue import Glue
from pipeline.models.traced import Call, Tensors, call, dynamic, strip
from pipeline.spec import FromKernel


def export(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Export through TorchScript."""
    inward, outward = demand.signature.inputs, demand.signature.outputs
    proto = write(
        call(demand),
        inputs,
        [glue.lowered(demand.lowering)],
        opset=demand.cell.opset,
        versions=demand.versions,
        input_names=[v.name for v in inward],
        output_names=[v.name for v in outward],
        axes={v.name: dynamic(v.shape) for v in (*inward, *outward)},
    )
    return _sized(proto, demand)


def write(
    module: torch.nn.Module,
    inputs: Tensors,
    lowered: Sequence[Lowered],
    *,
    opset: int,
    versions: Mapping[str, int],
    input_names: Sequence[str],
    output_names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> ModelProto:
    """Return the model of a module in which the operators of `lowered` become what their lowerings emit.

    `versions` are those of custom domains, `axes` the names of dynamic axes, by input or output and by number.
    """
    file = io.BytesIO()
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        for one in lowered:
            stack.enter_context(symbolics.registered(one, opset, versions, targets.names(one.spec)))
        torch.onnx.export(
            module,
            inputs,
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            **_chosen(),
            opset_version=opset,
            custom_opsets=dict(versions),
            input_names=list(input_names),
            output_names=list(output_names),
            dynamic_axes={name: dict(named) for name, named in axes.items() if named},
        )
    return strip(onnx.load_model_from_string(file.getvalue()))


def _chosen() -> dict[str, Any]:
    """Return what makes torch.onnx.export this exporter: torch 2.9 changed the default."""
    return {"dynamo": False} if torch_versions.DYNAMO_ARGUMENT.here else {}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what an exporter prints to itself, where it prints without a reason."""
    if torch_versions.QUIET_EXPORT.here:
        yield
        return
    with redirect_stdout(io.StringIO()):
        yield


def warm_up(module: Call, inputs: Tensors) -> None:
    """Export a tiny module."""
    with _quiet():
        torch.onnx.export(module, inputs, io.BytesIO(), opset_version=17, **_chosen())  # type: ignore[arg-type]  # as above


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
