"""Export every model of an operator in one cell. Loads no compiled library.

The operator is defined from its declaration, with a kernel that returns zeros: neither a kernel nor the reference can
change a model or crash an export.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import onnx
import torch

from opmatrix.basics.errors import ExportError, missing
from opmatrix.basics.files import write_bytes
from opmatrix.declaration.load import Operator
from opmatrix.export import manifest
from opmatrix.export.exporters import example_inputs, export
from opmatrix.export.generated_modules import GeneratedModules, ignored_attributes, load_generated, lowered_nodes
from opmatrix.export.manifest import Exported
from opmatrix.export.signature import ExpectedModel, check_legal, with_function
from opmatrix.lowering.graph import UnsupportedModel
from opmatrix.project.cells import Cell
from opmatrix.project.dtypes import why_not_written
from opmatrix.project.paths import Paths
from opmatrix.search.attribute_candidates import candidates
from opmatrix.signature.signature import attribute_values, has_function_body, model_dtypes
from opmatrix.spec import Attribute, AttributeValue, Lowering, OpSpec
from opmatrix.torch_ops import features, load
from opmatrix.torch_ops.call import torch_minor

TRIED = 6  # values of each attribute in each model


def check(expected: Sequence[ExpectedModel], generated: GeneratedModules) -> None:
    """Raise ExportError if a lowering emits the same nodes for all values of an attribute, in all models: it computes
    with a constant in its place, which no case with another value shows."""
    if not expected or getattr(generated.handwritten, expected[0].lowering, None) is None:
        return  # the derived lowering writes all attributes
    for attribute in expected[0].spec.attributes:
        if len({repr(attribute_values(one.spec, one.model)[attribute.name]) for one in expected}) > 1:
            continue  # a case has another value: the verdict names an argument that is dropped
        if same := _without_effect(attribute, expected, generated):
            one = expected[0]
            raise ExportError(
                f"{one.spec.name}-{one.lowering}@{one.cell.export_name}: the lowering ignores {attribute.name!r}: it "
                f"emits the same nodes for {', '.join(map(repr, dict.fromkeys(same)))}. Compute with the argument, or "
                f"refuse what is not computed: g.unsupported() in {generated.path}"
            )


def _without_effect(
    attribute: Attribute, expected: Sequence[ExpectedModel], generated: GeneratedModules
) -> list[AttributeValue]:
    """Return the values of an attribute for which the lowering emits the same nodes; none if one changes the nodes of a
    model."""
    same: list[AttributeValue] = []
    for one in expected:
        own, nodes = attribute_values(one.spec, one.model)[attribute.name], lowered_nodes(one, generated)
        others: list[AttributeValue] = [None] if attribute.optional else []
        if isinstance(own, tuple):
            others += [own[::-1], tuple(candidates(attribute)[: len(own)])]
        elif attribute.kind.endswith("s"):
            others += [tuple(candidates(attribute)[:2])]
        else:
            others += candidates(attribute)
        for value in [v for v in others if v != own][:TRIED]:
            model = replace(one.model, attributes={**one.model.attributes, attribute.name: value})
            try:
                if lowered_nodes(replace(one, model=model), generated) != nodes:
                    return []
            except UnsupportedModel:
                return []
            except Exception:  # a value that this version of the schema, or this shape, does not have
                continue
            same += [own, value]
    return same


def run(paths: Paths, operator: Operator, *, lowering: Lowering, cell: Cell) -> None:
    """Write model.onnx of every model, the manifest, with the reason for each model that the lowering does not support,
    and the graph drawings of the report.

    Raises ExportError for the first model that a gate rejects, or that is not supported but not declared so.
    """
    if (installed := torch_minor()) != cell.torch:
        raise ExportError(
            f"{operator.name}@{cell.export_name}: this environment has torch {torch.__version__}. "
            f"Choose a cell of torch {installed}, or another environment"
        )
    check_legal(operator.spec, cell)
    operator = operator.at(lowering, cell.opset)
    generated = load_generated(paths, operator.name)
    defined = define(paths, operator.spec, generated)  # the operator exists as long as this object
    manifest.write(paths, operator.name, lowering, cell, _models(paths, operator, lowering, cell, generated))
    del defined


def _models(
    paths: Paths, operator: Operator, lowering: Lowering, cell: Cell, generated: GeneratedModules
) -> Iterator[Exported]:
    with_body = lowering == "decomposed" and has_function_body(operator.spec)
    made: list[ExpectedModel] = []
    for model in operator.models:
        dtypes = model_dtypes(operator.spec, model)
        if lacking := features.why_no_dtype(dtypes) or why_not_written(cell.exporter, dtypes, torch_minor()):
            yield Exported(name=model.name, unsupported=lacking, lacks_dtype=True)
            if with_body:
                manifest.write_refused(paths.function_model(operator.name, cell, model.name), lacking)
            continue
        expected = generated.expected(operator.spec, model, lowering, cell)
        try:
            proto = export(expected, generated, example_inputs(expected))
        except UnsupportedModel as reason:
            if not model.unsupported:
                raise
            yield Exported(name=model.name, unsupported=str(reason))
            if with_body:
                manifest.write_refused(paths.function_model(operator.name, cell, model.name), str(reason))
            continue
        yield Exported(name=model.name, proto=proto, ignored_attributes=ignored_attributes(expected, generated))
        made.append(expected)
        if with_body:
            _write_function(paths, expected, generated)
    check(made, generated)


def _write_function(paths: Paths, expected: ExpectedModel, generated: GeneratedModules) -> None:
    """Write the custom model of the cell with a function body: the nodes of the decomposed model."""
    custom = paths.model(expected.spec.name, "custom", expected.cell, expected.model.name)
    try:
        proto = onnx.load_model(custom)
    except FileNotFoundError as error:
        replay = f"python -m opmatrix export {expected.spec.name} --lowering custom --cell {expected.cell}"
        problem = "is missing, which gets a function body"
        raise ExportError(f"{expected}: {missing(custom, run=replay, problem=problem)}") from error
    path = paths.function_model(expected.spec.name, expected.cell, expected.model.name)
    if not proto.HasField("graph"):  # the custom lowering refuses the model, and the file has the reason
        manifest.write_refused(path, proto.doc_string)
        return
    made = with_function(proto, replace(expected, lowering="custom"), lowered_nodes(expected, generated))
    write_bytes(path, made.SerializeToString(deterministic=True))


def define(paths: Paths, spec: OpSpec, generated: GeneratedModules) -> Any:
    """Define the operator unless torch has it; return what keeps it alive. Raises RegisterError or ExportError."""
    if spec.torch is None or spec.torch.overrides:
        return None
    if spec.torch.python:
        return load.define(paths, spec)
    try:
        return generated.fake.define()
    except RuntimeError as error:
        raise ExportError(
            f"{spec.name}: torch could not define {spec.torch.name} for the export: {str(error).splitlines()[0]} "
            f"Is it defined by ops/{spec.name}/lowering.py, or loaded there? Leave that to opmatrix"
        ) from error
