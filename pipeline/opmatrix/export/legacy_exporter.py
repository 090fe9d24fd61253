"""The legacy exporter, through TorchScript. Needs torch and onnx."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from typing import Any

import onnx
import torch
from onnx import ModelProto

from opmatrix.export import traced
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.signature import ExpectedModel
from opmatrix.export.traced import ExporterInput, OperatorModule, Tensors, exporter_input, leave_out, strip
from opmatrix.lowering import legacy as symbolics
from opmatrix.spec import FromKernel
from opmatrix.torch_ops import aten_overloads, features


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export one model of an operator, with the declared static sizes of its outputs.

    This exporter drops the sizes of all outputs of a node if one of them is dynamic or comes from the kernel, and those
    of a list behind another output. The gates compare them with onnx's own inference.
    """
    proto = leave_out(write(exporter_input(expected, generated, inputs)), expected)
    outputs, signature = expected.spec.outputs, expected.signature
    if not features.TYPED_RESULTS.available:
        return traced.restore_lost(proto, signature)
    dynamic = len(signature.outputs) > 1 and any(not isinstance(s, int) for v in signature.outputs for s in v.shape)
    if dynamic or any(o.variadic or isinstance(o.shape, FromKernel) for o in outputs):
        for value, declared in zip(proto.graph.output, signature.outputs, strict=True):
            for dim, size in zip(value.type.tensor_type.shape.dim, declared.shape, strict=False):
                if isinstance(size, int):
                    dim.dim_value = size
    return proto


def write(source: ExporterInput) -> ModelProto:
    """Trace the module and export it."""
    file = io.BytesIO()
    names, axes = (*source.input_names, *source.output_names), (*source.axes, *source.output_axes)
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        for one in source.lowered:
            stack.enter_context(
                symbolics.registered(one, source.opset, source.versions, aten_overloads.names(one.spec))
            )
        torch.onnx.export(
            source.module,
            source.inputs,
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            **exporter_choice(),
            opset_version=source.opset,
            custom_opsets=dict(source.versions),
            input_names=list(source.input_names),
            output_names=list(source.output_names),
            dynamic_axes={name: dict(named) for name, named in zip(names, axes, strict=False) if named},
        )
    return strip(onnx.load_model_from_string(file.getvalue()))


def exporter_choice() -> dict[str, Any]:
    """Return the arguments that select this exporter in torch.onnx.export: torch 2.9 changed the default."""
    return {"dynamo": False} if features.DYNAMO_ARGUMENT.available else {}


def _quiet() -> AbstractContextManager[object]:
    """Suppress the diagnostics that older versions print for each export."""
    return nullcontext() if features.QUIET_EXPORT.available else redirect_stdout(io.StringIO())


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module."""
    with _quiet():
        choice = exporter_choice()
        torch.onnx.export(module, inputs, io.BytesIO(), opset_version=17, **choice)  # type: ignore[arg-type]  # as above
