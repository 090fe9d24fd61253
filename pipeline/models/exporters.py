"""Both exporters of torch, each as one function from a demand to a model. Needs torch, onnx and onnxscript.

The operator itself must be defined in this process already: by its compiled library, or by its generated fake.py.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import onnx
import torch
from onnx import ModelProto

from pipeline.data.numbers import case_arrays
from pipeline.errors import ExportError
from pipeline.feeds import case_arguments, feeds, node_inputs
from pipeline.library.torch_call import torch_attributes, torch_operator
from pipeline.lowering import dynamo as translations
from pipeline.lowering import legacy as symbolics
from pipeline.matrix import Exporter
from pipeline.models import decomposition, guards, targets, torchlib
from pipeline.models.demand import Demand, qualified
from pipeline.models.exporter_errors import explain
from pipeline.models.exporter_warnings import collected, unexpected
from pipeline.models.glue import Glue, emitted, load_glue
from pipeline.models.model_gates import check
from pipeline.models.value_info import Shape
from pipeline.schema import dtype_of
from pipeline.spec import FromKernel, shape_of

__all__ = ["Glue", "Tensors", "example", "export", "load_glue", "warm_up"]

Tensors = tuple[torch.Tensor, ...]


class Call(torch.nn.Module):
    """A module that computes one function of the model's inputs."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.compute(*inputs)


def call(demand: Demand) -> Call:
    """Return the module that a model is exported from, in evaluation mode. Its attributes are constants."""
    spec, model = demand.spec, demand.model
    operator = functools.partial(torch_operator(spec), **torch_attributes(spec, model))

    def compute(*inputs: torch.Tensor) -> Any:
        given = [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, model.cases[0], inputs)]
        return model.around(operator, *given) if model.around else operator(*given)

    return Call(compute).eval()


def example(demand: Demand) -> Tensors:
    """Return zeros in the shapes of the first case: a model must not depend on a number.

    An operator of torch's own may refuse zeros, and the legacy exporter runs it: it gets the numbers of the case.
    """
    spec, model = demand.spec, demand.model
    if spec.torch and spec.torch.overrides:
        return tuple(map(torch.from_numpy, case_arrays(spec, model, model.cases[0])))
    return tuple(
        torch.zeros(shape_of(feed.tensor), dtype=getattr(torch, dtype_of(feed.part.type, model.types)))
        for feed in feeds(spec, model, model.cases[0])
    )


def legacy(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Export through TorchScript."""
    declared = demand.signature
    file = io.BytesIO()
    with symbolics.registered(glue.lowered(demand.lowering), demand.cell.opset, targets.names(demand.spec)):
        torch.onnx.export(
            call(demand),
            inputs,
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            dynamo=False,  # torch 2.9 changed the default
            opset_version=demand.cell.opset,
            custom_opsets=dict(demand.versions),
            input_names=[v.name for v in declared.inputs],
            output_names=[v.name for v in declared.outputs],
            dynamic_axes={v.name: axes for v in (*declared.inputs, *declared.outputs) if (axes := _dynamic(v.shape))},
        )
    return strip(_sized(onnx.load_model_from_string(file.getvalue()), demand))


def dynamo(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Export through torch.export: capture the program, then translate it."""
    declared = demand.signature
    axes = [_dynamic(v.shape) for v in declared.inputs]
    dims = {name: torch.export.Dim(name) for names in axes for name in names.values()}
    program = torch.export.export(
        call(demand),
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
            dynamic_shapes=(tuple(_each_name_once(axes)),) if dims else None,
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    return strip(_padded(exported.model_proto, demand))


EXPORTERS: Mapping[Exporter, Callable[[Demand, Glue, Tensors], ModelProto]] = {"legacy": legacy, "dynamo": dynamo}


def export(demand: Demand, glue: Glue, inputs: Tensors) -> ModelProto:
    """Trace one model with `inputs` and hold it against every gate.

    Raises ExportError, for a warning that nobody accepted as well, and Refusal where the lowering refuses the model.
    """
    demand = replace(demand, emitted=emitted(demand, glue), used=tuple(glue.used))
    with collected() as said:
        try:
            proto = EXPORTERS[demand.cell.exporter](demand, glue, inputs)
        except Exception as error:  # an exporter raises whatever its tracer, its passes and the operator raise
            if own := _own(error):
                raise type(own)(f"{demand}: {own}") from error
            message = f"{demand}: the {demand.cell.exporter} exporter raised {explain(error)}"
            raise ExportError(message) from error
    if texts := unexpected(said):
        raise ExportError(
            f"{demand}: the {demand.cell.exporter} exporter warned: {'; '.join(texts)}. "
            f"Mend the cause, or add the text to pipeline/models/exporter_warnings.py with the reason why it may be"
        )
    check(proto, demand)
    return proto


def warm_up() -> None:
    """Pay once for what every export of a process needs, and every process that is forked from it.

    Two exports of a tiny module, since each exporter imports and builds a good deal on first use, and torchlib's
    registry: 3 CPU s, after which a dynamo export takes 0.2 s instead of 0.55. Registers nothing.
    """
    module, inputs = Call(torch.relu).eval(), (torch.zeros(2, 3),)
    with collected(), torchlib.kept():
        torch.onnx.export(module, inputs, io.BytesIO(), dynamo=False, opset_version=18)  # type: ignore[arg-type]
        program = torch.export.export(module, inputs, dynamic_shapes=(({0: torch.export.Dim("N")},),))
        torch.onnx.export(program, dynamo=True, opset_version=18, external_data=False, verbose=False)


def _sized(proto: ModelProto, demand: Demand) -> ModelProto:
    """Write the sizes that the lowering set, where this exporter drops them: it does so with all outputs of a node of
    which one has a size that the kernel decides. The gates hold them against onnx's own inference."""
    if any(isinstance(output.shape, FromKernel) for output in demand.spec.outputs):
        for value, declared in zip(proto.graph.output, demand.signature.outputs, strict=True):
            for dim, size in zip(value.type.tensor_type.shape.dim, declared.shape, strict=False):
                if isinstance(size, int):
                    dim.dim_value = size
    return proto


def _padded(proto: ModelProto, demand: Demand) -> ModelProto:
    """Write absent inputs that torch leaves out at the end of a node, though a variadic input may follow them."""
    wanted = node_inputs(demand.spec, demand.model)
    for node in proto.graph.node:
        if qualified(node) == demand.node and not any(wanted[len(node.input) :]):
            node.input.extend(wanted[len(node.input) :])
    return proto


def strip(proto: ModelProto) -> ModelProto:
    """Remove metadata and doc strings: they hold absolute paths, and equal models must have equal bytes."""
    graph = proto.graph
    for part in (proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return proto


def _own(error: BaseException | None) -> ExportError | None:
    """Return what a lowering said, from under the errors that an exporter wraps it in."""
    while error and not isinstance(error, ExportError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, ExportError) else None


def _dynamic(shape: Shape) -> dict[int, str]:
    return {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}


def _each_name_once(shapes: list[dict[int, str]]) -> list[dict[int, str]]:
    """Leave each name where it first stands: these only rename the program's own symbols, and the exporter warns of
    a second name for one symbol even where it is the same."""
    seen: set[str] = set()
    kept = []
    for axes in shapes:
        first = {name: axis for axis, name in reversed(axes.items()) if name not in seen}
        kept.append({axis: name for name, axis in reversed(first.items())})
        seen.update(axes.values())
    return kept
