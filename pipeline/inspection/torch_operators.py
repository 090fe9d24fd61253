"""All operators of the project in one process of torch: as their libraries compute, and as they are exported."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from onnx import ModelProto

from pipeline import evolution
from pipeline.errors import OpmatrixError
from pipeline.inspection.torch_model import TorchModel
from pipeline.layout import Layout
from pipeline.library import torch_library
from pipeline.load import Operator
from pipeline.lowering import dynamo as translations
from pipeline.lowering import legacy as symbolics
from pipeline.lowering.arguments import Lowered
from pipeline.models import decomposition, legacy_exporter, targets, torchlib
from pipeline.models.glue import load_glue
from pipeline.models.traced import strip


@dataclass(frozen=True, kw_only=True)
class LoadedOperators:
    """The operators that torch now has; `missing` says of the others, by their torch names, why not."""

    lowered: Sequence[Lowered]
    missing: Mapping[str, str]
    alive: Sequence[Any] = field(repr=False)

    def versions(self) -> dict[str, int]:
        """Return the version of each custom domain that a model imports: the first that has all that is declared."""
        found: dict[str, int] = {}
        for spec in (s for one in self.lowered for s in (one.spec, *one.used)):
            found[spec.onnx.domain] = max(found.get(spec.onnx.domain, 1), *evolution.versions(spec))
        return found


def load(layout: Layout, operators: Sequence[Operator]) -> LoadedOperators:
    """Load every operator that is built: compiled library, fake kernel and lowering."""
    lowered, alive, missing = [], [], {}
    for operator in operators:
        if operator.spec.torch is None:
            continue
        try:
            glue = load_glue(layout, operator.name)
            loaded = torch_library.load(layout, operator)
            if not (operator.spec.torch.overrides or operator.spec.torch.python):
                glue.fake.register_fake()
            targets.overloads(operator.spec)
            lowered.append(glue.lowered("custom"))
        except (OpmatrixError, RuntimeError) as error:
            missing[operator.spec.torch.name] = str(error)
            continue
        alive.append(loaded)
    return LoadedOperators(lowered=lowered, missing=missing, alive=alive)


def legacy(model: TorchModel, loaded: LoadedOperators, opset: int, outputs: Sequence[str]) -> ModelProto:
    """Export through TorchScript."""
    file = io.BytesIO()
    with ExitStack() as stack:
        stack.enter_context(legacy_exporter.quiet())
        for lowered in loaded.lowered:
            stack.enter_context(symbolics.registered(lowered, opset, loaded.versions(), targets.names(lowered.spec)))
        torch.onnx.export(
            model.module,
            _copies(model),
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            **legacy_exporter.chosen(),
            opset_version=opset,
            custom_opsets=loaded.versions(),
            input_names=list(model.input_names),
            output_names=list(outputs),
            dynamic_axes={n: axes for n, axes in zip(model.input_names, model.axes(), strict=True) if axes},
        )
    return strip(onnx.load_model_from_string(file.getvalue()))


def dynamo(model: TorchModel, loaded: LoadedOperators, opset: int, outputs: Sequence[str]) -> ModelProto:
    """Export through torch.export."""
    from pipeline.models import dynamo_exporter, guards  # they import what older versions of torch have not

    axes = model.axes()
    dims = {name: torch.export.Dim(name) for of_one in axes for name in of_one.values()}
    shapes = tuple({axis: dims[name] for axis, name in of_one.items()} for of_one in axes)
    program = torch.export.export(model.module, _copies(model), dynamic_shapes=shapes if dims else None)
    table: dict[Any, Any] = {}
    for lowered in loaded.lowered:
        table |= translations.table(lowered, opset, loaded.versions(), targets.overloads(lowered.spec))
    with torchlib.kept(), decomposition.skipped(program, table):
        exported = torch.onnx.export(
            guards.unguarded(program),
            dynamo=True,
            opset_version=opset,
            custom_translation_table=table,
            input_names=list(model.input_names),
            output_names=list(outputs),
            # Only for the names: the program has its symbols already.
            dynamic_shapes=tuple(dynamo_exporter.each_name_once(axes)) if dims else None,
            external_data=False,
            verbose=False,
        )
    assert exported is not None
    return strip(exported.model_proto)


EXPORTERS = {"legacy": legacy, "dynamo": dynamo}


def _copies(model: TorchModel) -> tuple[torch.Tensor, ...]:
    """Return copies of the inputs: a model may write to them."""
    return tuple(t.detach().clone() for t in model.inputs)
