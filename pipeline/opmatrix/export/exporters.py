"""Export a model with either exporter of torch, check it, and explain the exporter's errors by cause and fix.

The process must have defined the operator: by its compiled library or by its generated fake.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import torch
from onnx import ModelProto

from opmatrix.basics import step_log
from opmatrix.basics.errors import ExportError, one_line
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.models import graph_inputs
from opmatrix.export import legacy_exporter
from opmatrix.export.exporter_warnings import collected, unexpected
from opmatrix.export.gates import check
from opmatrix.export.generated_modules import GeneratedModules, lowered_nodes
from opmatrix.export.signature import ExpectedModel
from opmatrix.export.traced import OperatorModule, Tensors
from opmatrix.signature.signature import dtype_of
from opmatrix.spec import shape_of
from opmatrix.torch_ops import features
from opmatrix.torch_ops.case_tensors import as_tensor

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# The message of an exporter, and the fix. The first match is printed.
_REMEDIES: Mapping[str, str] = {
    r"Failed to convert 'dynamic_axes' to 'dynamic_shapes'": (
        "The dynamo exporter ran, which does not use symbolic functions: it is the default since torch 2.9, so always "
        "pass dynamo="
    ),
    r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>": (
        r"No translation of \1.\2 was given: put it into the translation table (custom_translation_table=), keyed by "
        r"the overload torch.ops.\1.\2"
    ),
    r"Exporting the operator '(\S+?)' to ONNX opset version (\d+) is not supported": (
        r"No symbolic of \1 is registered at opset \2 or below: register it at the very opset that is asked for"
    ),
    r"object has no attribute 'to_function_proto'": (
        "torch 2.0 takes a node with the name of its torch operator for a function of onnxscript: take another torch"
    ),
    r"UnsupportedOperatorException: ([\w.]+)": (
        r"\1 has no fake kernel: register one with torch.library.register_fake, as the glue stage writes it to fake.py"
    ),
    r"You marked (\w+?)(?:_axis)? as dynamic but your code specialized it to be a constant \((\d+)\)": (
        r"torch.export takes the dynamic axis \1 for the constant \2, as it does where another size is the product of "
        r"dynamic axes: write None for it in `dynamic`, so that it is static"
    ),
}  # fmt: skip


# The dynamo exporter prints the failed step and how to report it before the exception itself.
_SUMMARY = re.compile(
    r"## Exception summary\s+<class '(?:[\w.]+\.)?(\w+)'>: (.*?)\s*(?:⬆️|\(Refer to the full stack|$)", re.DOTALL
)


def explain(error: Exception) -> str:
    """Return the fix, if it is known, and the type and message of an error, in one line without colours."""
    text = _COLOURS.sub("", f"{type(error).__name__}: {error}")
    summary = _SUMMARY.search(text)
    raised = f"it raised {one_line(f'{summary[1]}: {summary[2]}' if summary else text)}"
    for pattern, remedy in _REMEDIES.items():
        if match := re.search(pattern, one_line(text)):
            return f"{match.expand(remedy)}; {raised}"
    return raised


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
