"""The dynamo exporter, through torch.export. Needs torch 2.6, onnx and onnxscript."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from onnx import ModelProto
from torch.onnx._internal.exporter import _fx_passes, _registration

from opmatrix.declaration.models import DynamicAxis, node_inputs
from opmatrix.export import traced
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.signature import ExpectedModel
from opmatrix.export.traced import (
    ExporterInput,
    OperatorModule,
    Tensors,
    exporter_input,
    leave_out,
    strip,
    without_copies,
)
from opmatrix.lowering import dynamo as translations
from opmatrix.lowering.graph import qualified
from opmatrix.signature.signature import seeds
from opmatrix.torch_ops import aten_overloads, features

# Private names of torch; without them exports are slower and otherwise the same.
_BUILD = "from_torchlib"
_CHOOSE = "_cleanup_registry_based_on_opset_version"
_DECOMPOSE = "decompose_with_registry"

# The calls by which a captured program asserts that a size which only a kernel knows is in its range.
_ASSERTIONS = (torch.ops.aten._assert_scalar.default, torch.ops.aten.sym_constrain_range_for_size.default)
_OF_SIZES = (torch.ops.aten.sym_size.int, operator.ge, operator.le)


def export(expected: ExpectedModel, generated: GeneratedModules, inputs: Tensors) -> ModelProto:
    """Export one model of an operator, with the declared names of dynamic axes."""
    proto = without_copies(leave_out(write(exporter_input(expected, generated, inputs)), expected), expected)
    wanted = node_inputs(expected.spec, expected.model)
    for node in proto.graph.node:  # torch omits absent inputs at the end, though a variadic input may follow them
        if qualified(node) == expected.node and not any(wanted[len(node.input) :]):
            node.input.extend(wanted[len(node.input) :])
    return proto if features.DIMENSION_NAMES.available else traced.rename(proto, expected.signature)


def write(source: ExporterInput) -> ModelProto:
    """Capture the program with torch.export, then translate it."""
    dims = _dims(source)
    shapes: Any = tuple({axis: dims[name] for axis, name in names.items()} for names in source.axes)
    names_once: Any = tuple(_each_name_once(source.axes))
    if isinstance(source.module, OperatorModule):  # it takes *inputs, which torch counts as one argument
        shapes, names_once = (shapes,), (names_once,)
    # torch 2.6 captures through torch.compile, if not told otherwise, which takes no generator.
    options: Any = {"strict": False} if any(seeds(one.spec) for one in source.lowered) else {}
    program = torch.export.export(source.module, source.inputs, dynamic_shapes=shapes if dims else None, **options)
    if hasattr(program, "_guards_code"):
        # The code that asserts what the capture assumed of the sizes. No model can contain it; torch 2.9 compiles it
        # again in the export, where the name "L" in it is undefined, and newer versions run it there without effect.
        program._guards_code = []
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for one in source.lowered:
        table |= translations.table(one, source.opset, source.versions, aten_overloads.overloads(one.spec))
    with cached_registry(), skipped(program, table):
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=source.opset,
            custom_translation_table=table,
            input_names=list(source.input_names),
            output_names=list(source.output_names),
            dynamic_shapes=names_once if dims else None,  # only names: the program has its symbols already
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    return strip(exported.model_proto)


def _dims(source: ExporterInput) -> dict[str, Any]:
    """Return torch's object for each dynamic axis: one with its range, or computed from another one."""
    names = dict.fromkeys(name for names in source.axes for name in names.values())
    axes = {name: source.related.get(name, DynamicAxis()) for name in names}
    used = {axis.of for axis in source.related.values()}
    # torch 2.13 computes one axis from another with sympy, which has its own meaning for names such as N and S.
    symbols = {name: f"{name}_axis" if name in used else name for name in names}
    free = {n: torch.export.Dim(symbols[n], min=a.minimum, max=a.maximum) for n, a in axes.items() if a.of is None}
    return free | {n: free[a.of] * a.factor + a.offset for n, a in axes.items() if a.of is not None}


def warm_up(module: OperatorModule, inputs: Tensors) -> None:
    """Export a tiny module, and keep torchlib's registry for all later exports."""
    with cached_registry():
        program = torch.export.export(module, inputs, dynamic_shapes=(({0: torch.export.Dim("N")},),))
        torch.onnx.export(program, dynamo=True, opset_version=18, external_data=False, verbose=False)


def _each_name_once(shapes: Sequence[Mapping[int, str]]) -> list[dict[int, str]]:
    """Keep the first occurrence of each name: the exporter warns of a second name for one symbol, even of the same."""
    first: dict[str, tuple[int, int]] = {}
    for index, axes in enumerate(shapes):
        for axis, name in axes.items():
            first.setdefault(name, (index, axis))
    return [{a: name for a, name in axes.items() if first[name] == (index, a)} for index, axes in enumerate(shapes)]


@functools.cache
def _all_opsets() -> Any:
    """Return the registry with the translations of all opsets."""
    cls = _registration.ONNXRegistry
    if not hasattr(cls, _CHOOSE):  # torch 2.6 has the translations of one opset alone, and converts the model
        return cls.from_torchlib()
    with mock.patch.object(cls, _CHOOSE, lambda self: None):
        return cls.from_torchlib()


def registry(opset_version: int = 18) -> Any:
    """Return a copy of the result of ``ONNXRegistry.from_torchlib``, since torch adds custom translations to it."""
    onnx_registry = _registration.ONNXRegistry()
    onnx_registry.functions = {target: list(found) for target, found in _all_opsets().functions.items()}
    if hasattr(onnx_registry, _CHOOSE):
        onnx_registry._opset_version = opset_version
        onnx_registry._cleanup_registry_based_on_opset_version()
    return onnx_registry


@contextmanager
def cached_registry() -> Iterator[None]:
    """Build torchlib's registry, which does not depend on the model, once for this process and its forks.

    Each export would build it anew from the source of 500 functions: two thirds of the time of a small export
    (torch 2.13: 0.35 of 0.55 s; torch 2.6: 1.6 of 2.1 s).
    """
    cls = getattr(_registration, "ONNXRegistry", None)
    if not hasattr(cls, _BUILD):
        yield
        return
    _all_opsets()
    with mock.patch.object(cls, _BUILD, staticmethod(registry)):
        yield


def _asserting(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the nodes that assert that a size is in its range, which no model can contain, and those that compute
    only what these assert. torch removes them after the decomposition."""
    found: dict[torch.fx.Node, None] = {}
    for node in reversed(graph.nodes):
        is_read = any(user not in found for user in node.users)
        if node.target in _ASSERTIONS or (node.target in _OF_SIZES and node.users and not is_read):
            found[node] = None
    return [*reversed(found)]


@contextmanager
def skipped(program: torch.export.ExportedProgram, translated: Collection[object]) -> Iterator[bool]:
    """Skip torch's decomposition if `program` calls only operators of `translated`, which it would not change; yield
    whether it does. Torch collects all its decompositions: nine tenths of a small export (2.13: 0.25 of 0.3 s).

    The assertions of sizes that only a kernel knows do not count, and are removed if it is skipped.
    """
    asserting = _asserting(program.graph)
    calls = [node for node in program.graph.nodes if node.op == "call_function" and node not in asserting]
    skip = {node.target for node in calls} - {operator.getitem} <= {*translated} and hasattr(_fx_passes, _DECOMPOSE)
    for node in reversed(asserting) if skip else ():
        program.graph.erase_node(node)
    unchanged = mock.patch.object(_fx_passes, _DECOMPOSE, lambda program, registry: program)
    with unchanged if skip else nullcontext():
        yield skip
