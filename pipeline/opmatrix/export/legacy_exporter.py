"""The legacy exporter, by way of TorchScript. Needs torch and onnx."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any

import onnx
import torch
from onnx import ModelProto

from opmatrix.export import dimension_names
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.traced_module import ExporterInput, OperatorModule, Tensors, exporter_input, strip
from opmatrix.lowering import legacy_symbolic as symbolics
from opmatrix.spec import FromKernel
from opmatrix.torch_library import aten_overloads, features


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export through TorchScript, with the declared sizes."""
    return _sized(write(exporter_input(expected, generated, inputs)), expected)


def write(given: ExporterInput) -> ModelProto:
    """Export through TorchScript."""
    file = io.BytesIO()
    names, axes = (*given.input_names, *given.output_names), (*given.axes, *given.output_axes)
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        for one in given.lowered:
            stack.enter_context(symbolics.registered(one, given.opset, given.versions, aten_overloads.names(one.spec)))
        torch.onnx.export(
            given.module,
            given.inputs,
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            **_chosen(),
            opset_version=given.opset,
            custom_opsets=dict(given.versions),
            input_names=list(given.input_names),
            output_names=list(given.output_names),
            dynamic_axes={name: dict(named) for name, named in zip(names, axes, strict=False) if named},
        )
    return strip(onnx.load_model_from_string(file.getvalue()))


def _chosen() -> dict[str, Any]:
    """Return what makes torch.onnx.export this exporter: torch 2.9 changed the default."""
    return {"dynamo": False} if features.DYNAMO_ARGUMENT.available else {}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what an exporter prints to itself, where it prints without a reason."""
    if features.QUIET_EXPORT.available:
        yield
        return
    with redirect_stdout(io.StringIO()):
        yield


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module."""
    with _quiet():
        torch.onnx.export(module, inputs, io.BytesIO(), opset_version=17, **_chosen())  # type: ignore[arg-type]  # as above


def _sized(proto: ModelProto, expected: ExpectedModel) -> ModelProto:
    """Write the sizes that the lowering set, where this exporter drops them: it does so with all outputs of a node of
    which one has no size that is known: the kernel decides it, or it is dynamic. The gates hold them against onnx's own
    inference."""
    if not features.TYPED_RESULTS.available:
        return dimension_names.for_lost_ones(proto, expected.signature)
    several = len(expected.spec.outputs) > 1 and any(
        not isinstance(s, int) for v in expected.signature.outputs for s in v.shape
    )
    if several or any(isinstance(output.shape, FromKernel) for output in expected.spec.outputs):
        for value, declared in zip(proto.graph.output, expected.signature.outputs, strict=True):
            for dim, size in zip(value.type.tensor_type.shape.dim, declared.shape, strict=False):
                if isinstance(size, int):
                    dim.dim_value = size
    return proto
