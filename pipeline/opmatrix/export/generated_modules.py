"""Load an operator's generated schema, fake kernel and lowering, and ops/<name>/lowering.py. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from onnx import NodeProto, defs

from opmatrix.basics.errors import ExportError, missing
from opmatrix.basics.files import load_module
from opmatrix.declaration.load import load_operator
from opmatrix.declaration.models import case_arguments, output_names
from opmatrix.export.signature import ExpectedModel
from opmatrix.lowering.call import Lowered, Tensor, find, record
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values, torch_arguments
from opmatrix.signature.versions import version_at
from opmatrix.spec import Lowering, Model, OpSpec


@dataclass(frozen=True, kw_only=True)
class GeneratedModules:
    """The modules of an operator; `handwritten` is ops/<name>/lowering.py at `path`, if it exists.

    `used_specs` are the declarations of the operators that it uses, `used` the modules with their ONNX schemas.
    """

    spec: OpSpec
    schema: ModuleType
    fake: ModuleType
    derived: ModuleType
    handwritten: ModuleType | None
    path: Path
    used: Sequence[ModuleType]
    used_specs: tuple[OpSpec, ...]

    def lowered(self, lowering: Lowering) -> Lowered:
        """Return a lowering by its name. Raises ExportError if there is none."""
        found = find(self.spec, lowering, handwritten=self.handwritten, derived=self.derived, path=self.path)
        return replace(found, used=self.used_specs)

    def expected(self, spec: OpSpec, model: Model, lowering: Lowering, cell: Cell) -> ExpectedModel:
        """Return what an exported model must contain."""
        schema = self.schema.schema(version_at(spec, model.domain_version))
        return ExpectedModel(spec=spec, model=model, lowering=lowering, cell=cell, schema=schema)

    def used_schemas(self, model: Model) -> tuple[defs.OpSchema, ...]:
        """Return the ONNX schemas of the used operators, at the versions of domains that `model` imports."""
        imported = {self.spec.onnx.domain: model.domain_version}
        return tuple(
            module.schema(version_at(spec, imported.get(spec.onnx.domain, 1)))
            for module, spec in zip(self.used, self.used_specs, strict=True)
        )


def load_generated(paths: Paths, name: str) -> GeneratedModules:
    """Load the modules. Raises ExportError if `codegen` has not written them."""
    spec = load_operator(paths, name, checked=True).spec
    path = paths.lowering(name)
    return GeneratedModules(
        spec=spec,
        schema=generated_module(paths, name, "schema"),
        fake=generated_module(paths, name, "fake"),
        derived=generated_module(paths, name, "lowering"),
        handwritten=load_module(path, f"{name}_lowering") if path.is_file() else None,
        path=path.relative_to(paths.root),
        used=[generated_module(paths, used, "schema") for used in spec.uses],
        used_specs=tuple(load_operator(paths, used).spec for used in spec.uses),
    )


def generated_module(paths: Paths, name: str, module: str) -> ModuleType:
    """Load one generated module: "schema", "fake" or "lowering". Raises ExportError if it does not exist."""
    path = paths.generated(name) / f"{module}.py"
    try:
        return load_module(path, f"{name}_{module}")
    except FileNotFoundError as error:
        raise ExportError(missing(path, run=f"python -m opmatrix codegen {name}")) from error


def lowered_nodes(expected: ExpectedModel, generated: GeneratedModules) -> tuple[NodeProto, ...]:
    """Return the nodes that the lowering emits for a model. Raises ExportError or UnsupportedModel."""
    spec, model = expected.spec, expected.model
    try:
        fed = [
            Tensor(name=v.name, dtype=v.dtype, shape=tuple(s if isinstance(s, int) else None for s in v.shape))
            for v in expected.signature.inputs
        ]
        inputs = [list(a) if isinstance(a, tuple) else a for a in case_arguments(spec, model.cases[0], fed)]
        given = dict(zip((i.name for i in spec.inputs), inputs, strict=True)) | attribute_values(spec, model)
        return record(
            generated.lowered(expected.lowering),
            [given.get(a.source.name, a.default) for a in torch_arguments(spec)],
            opset=expected.cell.opset,
            versions=expected.versions,
            outputs=output_names(spec, model),
        )
    except ExportError as error:
        raise type(error)(f"{expected}: {error}") from error


def ignored_attributes(expected: ExpectedModel, generated: GeneratedModules) -> list[str]:
    """Return attributes that a model sets and its lowering ignores, which is right if no output depends on them."""
    given = expected.model.attributes
    changed = [
        a.name
        for a in expected.spec.attributes
        if (a.optional or a.default is not None) and a.default != given.get(a.name, a.default)
    ]
    nodes = lowered_nodes(expected, generated) if changed else ()
    ignored = []
    for attribute in changed:
        model = replace(expected.model, attributes={n: value for n, value in given.items() if n != attribute})
        with suppress(ExportError):
            if lowered_nodes(replace(expected, model=model), generated) == nodes:
                ignored.append(attribute)
    return ignored
