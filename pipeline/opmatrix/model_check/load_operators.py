"""Load the project's operators into torch, and export a user's model with them: the torch part of `doit check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from onnx import ModelProto

from opmatrix.declaration import schema_versions
from opmatrix.declaration.load import Operator
from opmatrix.errors import OpmatrixError
from opmatrix.export import legacy_exporter
from opmatrix.export.generated_modules import load_generated
from opmatrix.export.traced_module import ExporterInput
from opmatrix.lowering.call_lowering import Lowered
from opmatrix.matrix.cells import Exporter
from opmatrix.model_check.user_model import TorchModel
from opmatrix.project.paths import Paths
from opmatrix.torch_library import aten_overloads, load_library


class Generators:
    """The generators that operators draw seeds from, with their states at the first number, so that each run of a model
    draws the same numbers, and the exported ones are those of the run that they are compared with."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[torch.Generator, torch.Tensor]] = {}

    def watch(self, fake: Any) -> None:
        """Watch the generators of one operator, given by its generated module fake.py."""
        if next_seed := getattr(fake, "next_seed", None):

            def watched(generator: torch.Generator | None, *limits: int | None) -> Any:
                used = torch.default_generator if generator is None else generator
                self._first.setdefault(id(used), (used, used.get_state()))
                return next_seed(generator, *limits)

            fake.next_seed = watched

    def rewind(self) -> None:
        """Set each generator to its state at the first number."""
        for generator, state in self._first.values():
            generator.set_state(state)


@dataclass(frozen=True, kw_only=True)
class LoadedOperators:
    """The loaded operators, kept by `alive`; `missing` maps the torch names of the others to the error."""

    lowered: Sequence[Lowered]
    missing: Mapping[str, str]
    alive: Sequence[Any] = field(repr=False)
    generators: Generators

    def versions(self) -> dict[str, int]:
        """Return the version of each custom domain to import: the first that has everything that is declared."""
        found: dict[str, int] = {}
        for spec in (s for one in self.lowered for s in (one.spec, *one.used)):
            found[spec.onnx.domain] = max(found.get(spec.onnx.domain, 1), *schema_versions.versions(spec))
        return found


def load(paths: Paths, operators: Sequence[Operator]) -> LoadedOperators:
    """Load library, fake kernel and lowering of every operator that is built."""
    lowered, alive, missing, generators = [], [], {}, Generators()
    for operator in operators:
        if operator.spec.torch is None:
            continue
        try:
            generated = load_generated(paths, operator.name)
            loaded = load_library.load(paths, operator)
            if not (operator.spec.torch.overrides or operator.spec.torch.python):
                generated.fake.register_fake()
                generators.watch(generated.fake)
            aten_overloads.overloads(operator.spec)
            lowered.append(generated.lowered("custom"))
        except (OpmatrixError, RuntimeError) as error:
            missing[operator.spec.torch.name] = str(error)
            continue
        alive.append(loaded)
    return LoadedOperators(lowered=lowered, missing=missing, alive=alive, generators=generators)


def export(
    model: TorchModel, loaded: LoadedOperators, *, exporter: Exporter, opset: int, outputs: Sequence[str]
) -> ModelProto:
    """Export the model with one of torch's exporters, every operator in its custom lowering."""
    loaded.generators.rewind()
    given = ExporterInput(
        module=model.module,
        inputs=tuple(t.detach().clone() for t in model.inputs),  # a model may write to them
        lowered=loaded.lowered,
        opset=opset,
        versions=loaded.versions(),
        input_names=model.input_names,
        output_names=outputs,
        axes=model.axes(),
    )
    if exporter == "legacy":
        return legacy_exporter.write(given)
    from opmatrix.export import dynamo_exporter  # it imports modules that older versions of torch lack

    return dynamo_exporter.write(given)
