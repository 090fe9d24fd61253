"""Export a model with either exporter of torch, and check it. The `export` stage and `register` use it.

The process must have defined the operator: by its compiled library or by its generated fake.py. Needs torch and onnx,
and for the dynamo exporter onnxscript.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from onnx import ModelProto

from opmatrix import step_log
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.torch_signature import dtype_of
from opmatrix.errors import ExportError
from opmatrix.export import legacy_exporter
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.exporter_errors import explain
from opmatrix.export.exporter_warnings import collected, unexpected
from opmatrix.export.generated_modules import GeneratedModules, lowered_nodes
from opmatrix.export.model_gates import check
from opmatrix.export.traced_module import OperatorModule, Tensors
from opmatrix.spec import shape_of
from opmatrix.testdata.case_arrays import case_arrays
from opmatrix.torch_library import features
from opmatrix.torch_library.case_tensors import as_tensor


def example_inputs(expected: ExpectedModel) -> Tensors:
    """Return zeros in the shapes of the first case: a model must not depend on values.

    An operator of torch's own gets the values of the case: it may reject zeros, and the legacy exporter runs it.
    """
    spec, model = expected.spec, expected.model
    if spec.torch and spec.torch.overrides:
        return tuple(map(as_tensor, case_arrays(spec, model, model.cases[0])))
    return tuple(
        torch.zeros(shape_of(feed.tensor), dtype=getattr(torch, dtype_of(feed.part.type, model.types)))
        for feed in graph_inputs(spec, model, model.cases[0])
    )


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export one model with `inputs` and check it with all gates.

    Raises ExportError, also for a warning that is not accepted, and UnsupportedModel if the lowering does not support
    the model.
    """
    nodes, used = lowered_nodes(expected, generated), generated.used_schemas(expected.model)
    expected = replace(expected, lowered_nodes=nodes, used_schemas=used)
    with collected() as warned:
        try:
            with step_log.capture_stdout():
                proto = _write(expected, generated, inputs)
        except Exception as error:  # its tracer, its passes and the operator may raise anything
            cause: BaseException | None = error  # an exporter wraps the error of a lowering in its own
            while cause and not isinstance(cause, ExportError):
                cause = cause.__cause__ or cause.__context__
            if cause:
                raise type(cause)(f"{expected}: {cause}") from error
            step_log.detail(f"{type(error).__name__}: {error}")
            message = f"{expected}: the {expected.cell.exporter} exporter: {explain(error)}"
            raise ExportError(message) from error
    if texts := unexpected(warned):
        raise ExportError(
            f"{expected}: the {expected.cell.exporter} exporter warned: {'; '.join(texts)}. "
            "Fix the cause, or add the warning to pipeline/opmatrix/export/exporter_warnings.py with the reason why it "
            "may be"
        )
    check(proto, expected)
    return proto


def warm_up() -> None:
    """Export a tiny module with each exporter, once for all exports of this process and of its forks.

    Each exporter imports and builds much on first use: 3 CPU s, after which a dynamo export takes 0.2 s instead of
    0.55. Registers nothing.
    """
    module, inputs = OperatorModule(torch.relu).eval(), (torch.zeros(2, 3),)
    with collected():
        legacy_exporter.warm_up(module, inputs)
        if features.DYNAMO.available:
            from opmatrix.export import dynamo_exporter

            dynamo_exporter.warm_up(module, inputs)


def _write(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    if expected.cell.exporter == "legacy":
        return legacy_exporter.export(expected, generated, inputs)
    if not features.DYNAMO.available:
        raise ExportError(f"torch {torch.__version__} has no dynamo exporter: {features.DYNAMO.reason}")
    from opmatrix.export import dynamo_exporter  # its imports need torch 2.6

    return dynamo_exporter.export(expected, generated, inputs)
