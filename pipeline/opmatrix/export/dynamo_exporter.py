"""The dynamo exporter, by way of torch.export. Needs torch 2.6, onnx and onnxscript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from onnx import ModelProto

from opmatrix.declaration.model_inputs import node_inputs
from opmatrix.export import dimension_names, skip_decomposition, torchlib_cache
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.traced_module import ExporterInput, OperatorModule, Tensors, exporter_input, strip
from opmatrix.lowering import dynamo_translation as translations
from opmatrix.lowering.graph import qualified
from opmatrix.torch_library import aten_overloads, features

_GUARDS = "_guards_code"


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export through torch.export, with the declared names of sizes."""
    proto = _padded(write(exporter_input(expected, generated, inputs)), expected)
    return proto if features.DIMENSION_NAMES.available else dimension_names.declared(proto, expected.signature)


def write(given: ExporterInput) -> ModelProto:
    """Export through torch.export: capture the program, then translate it."""
    dims = {name: torch.export.Dim(name) for names in given.axes for name in names.values()}
    shapes: Any = tuple({axis: dims[name] for axis, name in names.items()} for names in given.axes)
    names_once: Any = tuple(_each_name_once(given.axes))
    if isinstance(given.module, OperatorModule):  # it takes *inputs, which torch counts as one argument
        shapes, names_once = (shapes,), (names_once,)
    program = torch.export.export(given.module, given.inputs, dynamic_shapes=shapes if dims else None)
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for one in given.lowered:
        table |= translations.table(one, given.opset, given.versions, aten_overloads.overloads(one.spec))
    with torchlib_cache.kept(), skip_decomposition.skipped(program, table):
        exported = torch.onnx.export(
            _unguarded(program),
            dynamo=True,
            opset_version=given.opset,
            custom_translation_table=table,
            input_names=list(given.input_names),
            output_names=list(given.output_names),
            dynamic_shapes=names_once if dims else None,  # for the names alone: the program has its symbols already
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    return strip(exported.model_proto)


def _unguarded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program without the code that asserts what its capture assumed of the inputs' sizes.

    No model could hold it. torch 2.9 compiles it anew in the export, where a name that it uses, "L", is not defined any
    more; newer versions run it there and throw it away. A private name of torch: where it is gone, nothing is done.
    """
    if hasattr(program, _GUARDS):
        setattr(program, _GUARDS, [])
    return program


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module, with torchlib's registry for all exports to come."""
    with torchlib_cache.kept():
        program = torch.export.export(module, inputs, dynamic_shapes=(({0: torch.export.Dim("N")},),))
        torch.onnx.export(program, dynamo=True, opset_version=18, external_data=False, verbose=False)


def _padded(proto: ModelProto, expected: ExpectedModel) -> ModelProto:
    """Write absent inputs that torch leaves out at the end of a node, though a variadic input may follow them."""
    wanted = node_inputs(expected.spec, expected.model)
    for node in proto.graph.node:
        if qualified(node) == expected.node and not any(wanted[len(node.input) :]):
            node.input.extend(wanted[len(node.input) :])
    return proto


def _each_name_once(shapes: Sequence[Mapping[int, str]]) -> list[dict[int, str]]:
    """Keep each name where it is first: these only rename the program's own symbols, and the exporter warns of a second
    name for one symbol even where it is the same."""
    first: dict[str, tuple[int, int]] = {}
    for index, axes in enumerate(shapes):
        for axis, name in axes.items():
            first.setdefault(name, (index, axis))
    return [{a: name for a, name in axes.items() if first[name] == (index, a)} for index, axes in enumerate(shapes)]
