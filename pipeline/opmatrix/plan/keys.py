"""The keys of steps: what decides whether a step runs again. Imports no framework, runs nothing.

A key is the files that the step reads, and its `config`: the fields of the declaration that it uses (not the file
spec.py), the versions that it depends on, and the code of its stage. `OperatorPlan` has the parts that steps share; the
function of `opmatrix.plan.steps` that makes a step, such as `_verify`, puts its key together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from opmatrix.basics.version import minor
from opmatrix.codegen import generated_files
from opmatrix.declaration import models as register_models
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs, graph_outputs
from opmatrix.project import cpu_levels
from opmatrix.project.cells import Cell, Choice, unshipped_rows
from opmatrix.project.paths import DATA_SET, PACKAGE, Paths
from opmatrix.project.settings import StepLimits, Versions
from opmatrix.records.code_hash import digest, function
from opmatrix.records.step import CheckKey, Config, Fingerprint, Server, Step, cell_step_name
from opmatrix.signature.signature import OWN_TORCH, has_function_body, has_torch_library, is_classic, is_own
from opmatrix.spec import Lowering, OpSpec, as_data, shape_of
from opmatrix.toolchain import headers, ort_headers
from opmatrix.toolchain.find import Toolchain
from opmatrix.wheel.settings import Dist


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The inputs of the step graph. `choice` contains the doit variables as given, `failed` the mistakes of the
    operators that cannot be used."""

    paths: Paths
    operators: Sequence[Operator]
    cells: Sequence[Cell]
    versions: Versions
    toolchain: Toolchain
    environ: Mapping[str, str]
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dist: Dist | None = None
    choice: Choice = Choice()  # noqa: RUF009 - it is frozen
    limits: StepLimits = field(default_factory=StepLimits)

    @cached_property
    def header_files(self) -> tuple[Path, ...]:
        """The headers for kernels and for bindings, which are listed once for all operators."""
        return self.paths.header_files()

    @cached_property
    def ort_headers(self) -> str:
        """What identifies ONNX Runtime's headers, for the steps that compile with them."""
        return ort_headers.find_headers(self.environ).identity

    @cached_property
    def operator_plans(self) -> tuple[OperatorPlan, ...]:
        return tuple(OperatorPlan(self, operator) for operator in self.operators)

    def named(self, names: Iterable[str]) -> list[Operator]:
        """Return the operators of these names that are planned, in the plan's order."""
        wanted = {*names}
        return [operator for operator in self.operators if operator.name in wanted] if wanted else []

    @cached_property
    def torches(self) -> tuple[str, ...]:
        """The versions of torch that have cells."""
        return tuple(dict.fromkeys(cell.torch for cell in self.cells if cell.torch))

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments that cells need, apart from the main one."""
        of_torch = (self.environment(torch=cell.torch) for cell in self.cells)
        of_ort = (self.environment(ort=cell.ort) for cell in self.cells)
        return tuple(dict.fromkeys(filter(None, (*of_torch, *of_ort))))

    def environment(self, *, torch: str | None = None, ort: str | None = None) -> str | None:
        """Return the environment that has this torch, or this ONNX Runtime; None for the main one."""
        if torch and torch != minor(self.versions.torch):
            return f"torch{torch}"
        if ort and ort != minor(self.versions.onnxruntime):
            return f"ort{ort}"
        return None

    def is_main(self, cell: Cell) -> bool:
        """Return whether every step of a cell runs in the main environment."""
        return not self.environment(torch=cell.torch) and not self.environment(ort=cell.ort)


@dataclass(frozen=True)
class OperatorPlan:
    """One operator of a plan: the keys that its steps share, and the files that they read and write."""

    plan: Plan
    operator: Operator

    @property
    def paths(self) -> Paths:
        return self.plan.paths

    @property
    def spec(self) -> OpSpec:
        return self.operator.spec

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def handwritten_files(self) -> frozenset[str]:
        return self.operator.handwritten_files

    # The parts of keys that are no files: digests of fields of the operator's declaration and cases.

    @cached_property
    def _interface(self) -> dict[str, Any]:
        left_out = ("tolerances", "lowerings", "min_opset", "kernel", "headers", "reference", "dependent_reference")
        return {field: value for field, value in as_data(self.spec).items() if field not in left_out}

    @cached_property
    def codegen_key(self) -> Fingerprint:
        """The fields of the declaration that bindings and graphs follow from: all but tolerances and lowerings."""
        return fingerprint(self._interface)

    @cached_property
    def runtime_key(self) -> Fingerprint:
        """The same without summary and docs, which only codegen writes, and what only the step `cases` reads."""
        named = ("inputs", "attributes", "outputs")
        silent = {
            kind: [{k: v for k, v in part.items() if k not in ("doc", "no_effect")} for part in self._interface[kind]]
            for kind in named
        }
        return fingerprint({k: v for k, v in self._interface.items() if k != "summary"} | silent)

    @cached_property
    def used_key(self) -> Fingerprint:
        """The declarations of the operators whose nodes the models may contain."""
        return fingerprint([as_data(o.spec) for o in self.plan.named(self.spec.uses)])

    @cached_property
    def tolerances(self) -> Mapping[str, Any]:
        by_lowering: Mapping[str, Any] = as_data(self.spec.tolerances)
        return by_lowering

    @cached_property
    def _models(self) -> list[dict[str, Any]]:
        return [as_data(model) for model in self.operator.models]

    @cached_property
    def models_key(self) -> Fingerprint:
        return fingerprint(self._models)

    @cached_property
    def sampled_key(self) -> Fingerprint:
        """What the parts of register that start the exporters use of the models: few cases."""
        return fingerprint(as_data(register_models.sampled(self.operator)))

    @cached_property
    def shapes_key(self) -> Mapping[str, Any]:
        """The field of the step that compares computed shapes: those of every case, without values."""
        shapes = register_models.shaped(self.operator)
        return {"shapes": fingerprint(as_data(shapes))} if shapes else {}

    @cached_property
    def reference_key(self) -> Mapping[str, Any]:
        """The fields of a step that evaluates the reference. One in torch depends on the torch of the main environment.

        `reference_process` is a program that no stage imports.
        """
        program = PACKAGE / "torch_ops/reference_process.py"
        in_torch = {"code": (program,), "evaluated_in": f"torch {self.plan.versions.torch}"}
        why = self.spec.dependent_reference
        return (in_torch if self.spec.reference == "torch" else {}) | ({"dependent": why} if why else {})

    @cached_property
    def export_key(self) -> Fingerprint:
        """What an export uses of the models: all but their cases, of which it uses the shapes of the first."""
        return fingerprint(
            [
                {field: value for field, value in data.items() if field != "cases"}
                | {"shapes": [(f.name, shape_of(f.tensor)) for f in graph_inputs(self.spec, model, model.cases[0])]}
                for model, data in zip(self.operator.models, self._models, strict=True)
            ]
        )

    @cached_property
    def levels_key(self) -> Mapping[str, Any]:
        """The field of a step that runs the kernel at each level of the processor."""
        specs = (self.spec, *(o.spec for o in self.plan.named(self.spec.uses)))
        return {"cpu_levels": cpu_levels.of_processor()} if any(spec.cpu_levels for spec in specs) else {}

    @cached_property
    def lowering_hashes(self) -> Mapping[Lowering, str]:
        """A hash of each function of lowering.py: an edit of one repeats no export of the other."""
        path, names = self.paths.lowering(self.name), get_args(Lowering)
        return {n: function(path, n, others={*names} - {n}) if path.is_file() else "" for n in names}

    # Its steps, and the files that they read and write.

    def step(self, group: str, suffix: str = "", *arguments: str, **fields: Any) -> Step:
        """Make a step of this operator, as `make_step` does."""
        fields = {"name": f"{self.name}{suffix}", "operator": self.name, "declared": self.declared} | fields
        return make_step(self.plan, group, self.name, *arguments, **fields)

    def cell_step(self, group: str, lowering: Lowering, cell: Cell, *arguments: str, **fields: Any) -> Step:
        """Make the step of one cell."""
        cell_arguments = ("--lowering", lowering, "--cell", str(cell))
        name = cell_step_name(group, self.name, lowering, cell)
        return self.step(group, "", *cell_arguments, *arguments, name=name, lowering=lowering, cell=cell, **fields)

    def register(self, what: str, *, torch: str, uses: Iterable[str] = (), **fields: Any) -> Step:
        """Make the step that tests one part of the operator in this torch."""
        environment = self.plan.environment(torch=torch)
        record = self.paths.register_manifest(self.name, what, torch=torch)
        return self.step(
            "register",
            f"-{what}@torch{torch}",
            "--part", what, *(["--torch", torch] if environment else []),
            check=CheckKey(self.name, what, torch=torch),
            writes=[record],
            verdict=record,
            spec=self.runtime_key,
            environment=environment,
            uses=("torch", *uses),
            **{"server": "torch"} | fields,
        )  # fmt: skip

    @cached_property
    def declared(self) -> tuple[Path, ...]:
        """The files of this operator, and of those that it uses, that the plan is made from."""
        paths = self.paths
        others = [*self.spec.uses, *([self.backward.name] if self.backward else [])]
        used = [path for name in others for path in (paths.spec(name), paths.cases(name))]
        return (paths.spec(self.name), paths.cases(self.name), paths.lowering(self.name), *used)

    @cached_property
    def backward(self) -> OperatorPlan | None:
        """The operator that computes its gradient, if the declaration names one."""
        name = backward_of(self.spec)
        return next((OperatorPlan(self.plan, o) for o in self.plan.named([name] if name else ())), None)

    @property
    def backward_key(self) -> Mapping[str, Any]:
        """The fields of a step that calls that operator."""
        return {"backward": self.backward.runtime_key} if self.backward else {}

    @property
    def reference_files(self) -> tuple[Path, ...]:
        """reference.py, and what it may run if it is declared to be not independent."""
        own = self.paths.own_sources(self.name) if self.spec.dependent_reference else ()
        return (self.paths.reference(self.name), *own)

    @cached_property
    def torch_op(self) -> tuple[Path, ...]:
        """The operator's torch_op.py, where it has one."""
        path = self.paths.torch_op(self.name)
        return (path,) if path.is_file() else ()

    @property
    def own_torch(self) -> bool:
        """Whether its torch binding is handwritten, with torch's C++ headers."""
        return is_own(OWN_TORCH, self.spec, self.handwritten_files)

    def needs_own_library(self, torch: str) -> str | None:
        """Return this torch where it needs a library that is compiled for it alone. None where one library works in
        several, and for a handwritten torch.cc in the main environment, which is compiled with the rest."""
        other_torch = self.plan.environment(torch=torch) is not None and has_torch_library(self.spec)
        return torch if other_torch and (self.own_torch or is_classic(self.spec, torch)) else None

    @cached_property
    def cpp_files(self) -> tuple[Path, ...]:
        """What the compiler reads apart from the headers of frameworks: generated and handwritten C++."""
        paths, spec = self.paths, self.spec
        generated = generated_files.cpp_files(spec, self.handwritten_files)
        return (
            *(paths.generated(self.name) / file for file in generated),
            *self.plan.header_files,
            *paths.own_sources(self.name),
            *headers.files(spec, paths.root),
        )

    @cached_property
    def data_files(self) -> tuple[Path, ...]:
        return tuple(
            folder / f"{kind}_{k}.pb"
            for model in self.operator.models
            for n, case in enumerate(model.cases)
            for folder in (self.paths.data(self.name, model.name, n),)  # once: making thousands of paths is slow
            for kind, parts in (
                ("input", graph_inputs(self.spec, model, case)),
                ("output", graph_outputs(self.spec, model)),
                *((("vectors", graph_outputs(self.spec, model)),) if case.expected else ()),
            )
            for k in range(len(parts))
        )

    @cached_property
    def vectors(self) -> tuple[Path, ...]:
        """The files with outputs from elsewhere that are there; a missing one is named by the stage."""
        cases = (case for model in self.operator.models for case in model.cases)
        named = dict.fromkeys(self.paths.op(self.name) / case.expected.path for case in cases if case.expected)
        return tuple(file for p in named for file in (sorted(p.glob("*.pb")) if p.is_dir() else [p]) if file.is_file())

    @cached_property
    def published_files(self) -> tuple[Path, ...]:
        """The models of published versions, with their data."""
        folders = [self.paths.published(self.name, version) for version in self.operator.published]
        return tuple(sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in (".onnx", ".pb")))

    def torch_code(self, torch: str) -> tuple[Path, ...]:
        """What computes in torch: the compiled library, or the operator in Python."""
        if not has_torch_library(self.spec):
            return self.torch_op
        one = self.needs_own_library(torch)
        version = (self.paths.torch_version(self.name, torch=one),) if one or self.own_torch else ()
        return (self.paths.torch_library(self.name, torch=one), *version)

    def torch_interface(self, torch: str) -> tuple[Path, ...]:
        """The files from which torch gets the operator's schema, fake kernel and gradient, without the kernel.

        The parts "kernel" and "search", which read the library, test the kernel: it must not change its inputs, and
        its outputs must have the declared dtypes and shapes.
        """
        called = self.backward.torch_interface(torch) if self.backward else ()
        return (*self.export_modules, *self.binding_objects(torch), *self.torch_op, *called)

    def library_steps(self, torch: str) -> tuple[str, ...]:
        """The steps that compile the torch library, for a step that reads its `binding_objects` alone and loads it."""
        called = self.backward.library_steps(torch) if self.backward else ()
        alone = f"@torch{torch}" if self.needs_own_library(torch) else ""
        return (*([f"compile:{self.name}{alone}"] if has_torch_library(self.spec) else []), *called)

    def binding_objects(self, torch: str) -> tuple[Path, ...]:
        """The objects of the torch library other than the kernel's; of a handwritten torch.cc, which may contain
        arithmetic, the library."""
        if not has_torch_library(self.spec):
            return ()
        if self.own_torch:
            return self.torch_code(torch)
        alone = self.paths.objects(self.name, "torch", torch=self.needs_own_library(torch))
        return (*alone, *self.paths.objects(self.name, "runtime"))

    @cached_property
    def export_modules(self) -> tuple[Path, ...]:
        """The generated Python modules that define the operator for torch and its exporters."""
        paths = self.paths
        return (
            *(paths.generated(self.name) / file for file in generated_files.PYTHON),
            *(paths.generated(name) / generated_files.SCHEMA for name in self.spec.uses),
        )

    def model_files(self, lowering: Lowering, cell: Cell) -> tuple[Path, ...]:
        """Return the models of a cell; one that a lowering refuses is also a file."""
        return tuple(self.paths.model(self.name, lowering, cell, model.name) for model in self.operator.models)

    def data_links(self, lowering: Lowering, cell: Cell) -> Iterator[str]:
        """Yield the links from a cell's models to the data sets of their cases, as strings: there are thousands."""
        for model in self.operator.models:
            folder = self.paths.model(self.name, lowering, cell, model.name).parent
            yield from (f"{folder}/{DATA_SET}{index}" for index in range(len(model.cases)))

    def function_models(self, lowering: Lowering, cell: Cell) -> tuple[Path, ...]:
        """Return what an export writes with decomposed models: the custom ones with a function body."""
        models = self.operator.models if lowering == "decomposed" and has_function_body(self.spec) else ()
        return tuple(self.paths.function_model(self.name, cell, model.name) for model in models)


def make_step(
    plan: Plan,
    group: str,
    *arguments: str,
    name: str = "",
    operator: str = "",
    lowering: Lowering | None = None,
    cell: Cell | None = None,
    check: CheckKey | None = None,
    command: str = "",
    asks: Iterable[str] = (),
    stage: str = "",
    reads: Iterable[Path | str] = (),
    writes: Iterable[Path] = (),
    links: Iterable[str] = (),
    code: Iterable[Path] = (),
    declared: Iterable[Path] = (),
    after: Iterable[str] = (),
    discovered_inputs: Path | None = None,
    server: Server | None = None,
    environment: str | None = None,
    uses: Iterable[str] = (),
    verdict: Path | None = None,
    **config: Any,
) -> Step:
    """Make a step of a group. `command` is the group where it is not given, `stage` the command.

    `config` is what the step depends on apart from its files, `code` the files that its stage reads, such as templates,
    `uses` the packages: by their versions here, or by the files that hold those of another environment.
    """
    if environment:
        reads = [*reads, *(plan.paths.installed_version(environment, package) for package in uses)]
    else:
        config |= {package: getattr(plan.versions, package) for package in uses}
    if own := unshipped_rows(cell.torch if cell else check.torch if check else None, cell.ort if cell else None):
        config["rows"] = own
    config = {"code": digest(stage or command or group, *code), **config}
    parts = tuple(part for part in config.values() if isinstance(part, Fingerprint))
    return Step(
        group=group,
        name=name,
        command=(command or group, *arguments),
        operator=operator,
        lowering=lowering,
        cell=cell,
        check=check,
        asks=tuple(asks),
        reads=tuple(map(str, reads)),
        writes=tuple(map(str, writes)),
        links=tuple(links),
        config=Config(json.dumps(config, sort_keys=True), parts),
        declared=tuple(map(str, declared)),
        discovered_inputs=str(discovered_inputs) if discovered_inputs else None,
        after=tuple(after),
        server=server,
        environment=environment,
        verdict=str(verdict) if verdict else None,
        seconds=plan.limits.seconds,
        megabytes=plan.limits.megabytes,
        written=plan.limits.written,
    )


def fingerprint(data: Any) -> Fingerprint:
    """Return a digest of JSON data: declarations are large, and hundreds of steps store their `config`."""
    text = json.dumps(data, sort_keys=True)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest()[:16], lambda: text)
