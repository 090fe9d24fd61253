"""The dynamo exporter, through torch.export. Needs torch 2.6, onnx and onnxscript."""

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


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export one model of an operator, with the declared names of dynamic axes."""
    proto = write(exporter_input(expected, generated, inputs))
    wanted = node_inputs(expected.spec, expected.model)
    for node in proto.graph.node:  # torch omits absent inputs at the end, though a variadic input may follow them
        if qualified(node) == expected.node and not any(wanted[len(node.input) :]):
            node.input.extend(wanted[len(node.input) :])
    return proto if features.DIMENSION_NAMES.available else dimension_names.rename(proto, expected.signature)


def write(given: ExporterInput) -> ModelProto:
    """Capture the program with torch.export, then translate it."""
    dims = {name: torch.export.Dim(name) for names in given.axes for name in names.values()}
    shapes: Any = tuple({axis: dims[name] for axis, name in names.items()} for names in given.axes)
    names_once: Any = tuple(_each_name_once(given.axes))
    if isinstance(given.module, OperatorModule):  # it takes *inputs, which torch counts as one argument
        shapes, names_once = (shapes,), (names_once,)
    program = torch.export.export(given.module, given.inputs, dynamic_shapes=shapes if dims else None)
    if hasattr(program, "_guards_code"):
        # The code that asserts what the capture assumed of the sizes. No model can contain it; torch 2.9 compiles it
        # again in the export, where the name "L" in it is undefined, and newer versions run it there without effect.
        program._guards_code = []
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for one in given.lowered:
        table |= translations.table(one, given.opset, given.versions, aten_overloads.overloads(one.spec))
    with torchlib_cache.cached_registry(), skip_decomposition.skipped(program, table):
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=given.opset,
            custom_translation_table=table,
            input_names=list(given.input_names),
            output_names=list(given.output_names),
            dynamic_shapes=names_once if dims else None,  # only names: the program has its symbols already
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    return strip(exported.model_proto)


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module, and keep torchlib's registry for all later exports."""
    with torchlib_cache.cached_registry():
        program = torch.export.export(module, inputs, dynamic_shapes=(({0: torch.export.Dim("N")},),))
        torch.onnx.export(program, dynamo=True, opset_version=18, external_data=False, verbose=False)


def _each_name_once(shapes: Sequence[Mapping[int, str]]) -> list[dict[int, str]]:
    """Keep the first occurrence of each name: the exporter warns of a second name for one symbol, even of the same."""
    first: dict[str, tuple[int, int]] = {}
    for index, axes in enumerate(shapes):
        for axis, name in axes.items():
            first.setdefault(name, (index, axis))
    return [{a: name for a, name in axes.items() if first[name] == (index, a)} for index, axes in enumerate(shapes)]
