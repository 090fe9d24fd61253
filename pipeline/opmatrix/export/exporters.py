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


def example_inputs(expected: ExpectedModel) -> Tensors:
    """Return zeros in the shapes of the first case: a model must not depend on a number.

    An operator of torch's own may refuse zeros, and the legacy exporter runs it: it gets the numbers of the case.
    """
    spec, model = expected.spec, expected.model
    if spec.torch and spec.torch.overrides:
        return tuple(map(torch.from_numpy, case_arrays(spec, model, model.cases[0])))
    return tuple(
        torch.zeros(shape_of(feed.tensor), dtype=getattr(torch, dtype_of(feed.part.type, model.types)))
        for feed in graph_inputs(spec, model, model.cases[0])
    )


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Trace one model with `inputs` and hold it against every gate.

    Raises ExportError, for a warning that nobody accepted as well, and UnsupportedModel where the lowering refuses it.
    """
    expected = replace(
        expected, emitted=lowered_nodes(expected, generated), used=generated.used_schemas(expected.model)
    )
    with collected() as said:
        try:
            with step_log.capture_stdout():
                proto = _write(expected, generated, inputs)
        except Exception as error:  # an exporter raises whatever its tracer, its passes and the operator raise
            if own := _own(error):
                raise type(own)(f"{expected}: {own}") from error
            step_log.detail(f"{type(error).__name__}: {error}")
            message = f"{expected}: the {expected.cell.exporter} exporter: {explain(error)}"
            raise ExportError(message) from error
    if texts := unexpected(said):
        raise ExportError(
            f"{expected}: the {expected.cell.exporter} exporter warned: {'; '.join(texts)}. "
            "Mend the cause, or add the text to pipeline/opmatrix/export/exporter_warnings.py with the reason why it "
            "may be"
        )
    check(proto, expected)
    return proto


def warm_up() -> None:
    """Pay once for what every export of a process needs, and every process that is forked from it.

    Two exports of a tiny module, since each exporter imports and builds a good deal on first use, and torchlib's
    registry: 3 CPU s, after which a dynamo export takes 0.2 s instead of 0.55. Registers nothing.
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
    from opmatrix.export import dynamo_exporter  # it imports what older versions of torch have not

    return dynamo_exporter.export(expected, generated, inputs)


def _own(error: BaseException | None) -> ExportError | None:
    """Return what a lowering said, from under the errors that an exporter wraps it in."""
    while error and not isinstance(error, ExportError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, ExportError) else None
