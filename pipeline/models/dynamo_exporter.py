"""The dynamo exporter, by way of torch.export. Needs torch 2.6, onnx and onnxscript."""

from __future__ import annotations

import torch
from onnx import ModelProto

from pipeline.feeds import node_inputs
from pipeline.library import torch_versions
from pipeline.lowering import dynamo as translations
from pipeline.models import decomposition, dimension_names, guards, targets, torchlib
from pipeline.models.demand import Demand, qualified
from pipeline.models.glue import Glue
from pipeline.models.traced import OperatorModule, Tensors, dynamic, operator_module, strip


def export(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Export through torch.export: capture the program, then translate it."""
    declared = demand.signature
    axes = [dynamic(v.shape) for v in declared.inputs]
    dims = {name: torch.export.Dim(name) for names in axes for name in names.values()}
    program = torch.export.export(
        operator_module(demand),
        inputs,
        dynamic_shapes=(tuple({axis: dims[name] for axis, name in names.items()} for names in axes),),
    )
    table = translations.table(
        glue.lowered(demand.lowering), demand.cell.opset, demand.versions, targets.overloads(demand.spec)
    )
    with torchlib.kept(), decomposition.skipped(program, table):
        exported = torch.onnx.export(
            guards.unguarded(program),
            dynamo=True,
            opset_version=demand.cell.opset,
            custom_translation_table=table,
            input_names=[v.name for v in declared.inputs],
            output_names=[v.name for v in declared.outputs],
            dynamic_shapes=(tuple(each_name_once(axes)),) if dims else None,
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    proto = _padded(exported.model_proto, demand)
    if not torch_versions.DIMENSION_NAMES.here:
        proto = dimension_names.declared(proto, declared)
    return strip(proto)


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module, with torchlib's registry for all exports to come."""
    with torchlib.kept():
        program = torch.export.export(module, inputs, dynamic_shapes=(({0: torch.export.Dim("N")},),))
        torch.onnx.export(program, dynamo=True, opset_version=18, external_data=False, verbose=False)


def _padded(proto: ModelProto, demand: Demand) -> ModelProto:
    """Write absent inputs that torch leaves out at the end of a node, though a variadic input may follow them."""
    wanted = node_inputs(demand.spec, demand.model)
    for node in proto.graph.node:
        if qualified(node) == demand.node and not any(wanted[len(node.input) :]):
            node.input.extend(wanted[len(node.input) :])
    return proto


def each_name_once(shapes: list[dict[int, str]]) -> list[dict[int, str]]:
    """Leave each name where it first stands: these only rename the program's own symbols, and the exporter warns of
    a second name for one symbol even where it is the same."""
    seen: set[str] = set()
    kept = []
    for axes in shapes:
        first = {name: axis for axis, name in reversed(axes.items()) if name not in seen}
        kept.append({axis: name for name, axis in reversed(first.items())})
        seen.update(axes.values())
    return kept
