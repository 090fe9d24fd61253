"""Plan: declarations and matrix in, steps out. Imports no framework, runs nothing.

A step is keyed by the files that it reads and by its `config`: the fields of the declaration that it uses (not the
file spec.py), the versions that it depends on, and the code of its stage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pipeline.code import digest, function
from pipeline.feeds import feeds
from pipeline.glue import names
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.matrix import Cell
from pipeline.project import Versions, lost_headers, minor
from pipeline.report.template import TEMPLATES
from pipeline.schema import OWN_ORT, OWN_TORCH, has_function_body, has_ort_library, has_torch_library, is_own
from pipeline.spec import Lowering, OpSpec, as_data, shape_of
from pipeline.step import Config, Fingerprint, Server, Step
from pipeline.toolchain import headers
from pipeline.toolchain.find import Toolchain
from pipeline.toolchain.native_build import build_ninja


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a graph is made from. `opsets` is the doit variable as it was given; `seconds` the time limit of a step."""

    layout: Layout
    operators: Sequence[Operator]
    cells: Sequence[Cell]
    versions: Versions
    toolchain: Toolchain
    environ: Mapping[str, str]
    opsets: str = "default"
    seconds: float = 300
    megabytes: float = 8000


@dataclass(frozen=True)
class _Part:
    """One operator of a plan. What several of its steps are keyed by is made once."""

    plan: Plan
    operator: Operator

    @property
    def layout(self) -> Layout:
        return self.plan.layout

    @property
    def spec(self) -> OpSpec:
        return self.operator.spec

    @property
    def name(self) -> str:
        return self.operator.name

    def step(self, group: str, suffix: str = "", *arguments: str, **fields: Any) -> Step:
        """Make a step of this operator, as `_step` does."""
        return _step(self.plan, group, f"{self.name}{suffix}", self.name, *arguments, declared=self.declared, **fields)

    def register(self, what: str, **fields: Any) -> Step:
        """Make the step that proves one part of what torch is given."""
        torch = minor(self.plan.versions.torch)
        return self.step(
            "register",
            f"-{what}@torch{torch}",
            "--part", what,
            writes=[self.layout.registered(self.name, what, torch=torch)],
            spec=self.interface,
            **{"server": "torch"} | self.versions("torch") | fields,
        )  # fmt: skip

    def versions(self, *packages: str) -> dict[str, str]:
        """Return the versions of the packages that a step depends on."""
        return {package: getattr(self.plan.versions, package) for package in packages}

    @cached_property
    def declared(self) -> tuple[Path, ...]:
        """The files of this operator, and of those that it uses, that the plan is made of."""
        layout = self.layout
        used = [path for name in self.spec.uses for path in (layout.spec(name), layout.cases(name))]
        return (layout.spec(self.name), layout.cases(self.name), layout.lowering(self.name), *used)

    @cached_property
    def torch_op(self) -> tuple[Path, ...]:
        """The operator's torch_op.py, where it has one."""
        path = self.layout.torch_op(self.name)
        return (path,) if path.is_file() else ()

    @property
    def written(self) -> frozenset[str]:
        return self.operator.written

    @property
    def own_torch(self) -> bool:
        """Whether its torch binding is written by hand, over torch's C++ headers."""
        return is_own(OWN_TORCH, self.spec, self.written)

    @cached_property
    def _interface(self) -> dict[str, Any]:
        left_out = ("tolerances", "lowerings", "min_opset", "kernel", "headers")
        return {field: value for field, value in as_data(self.spec).items() if field not in left_out}

    @cached_property
    def documented(self) -> Fingerprint:
        """The fields of the declaration that bindings and graphs follow from: all but tolerances and lowerings."""
        return _fingerprint(self._interface)

    @cached_property
    def interface(self) -> Fingerprint:
        """The same without what is said to people, which only glue writes down."""
        named = ("inputs", "attributes", "outputs")
        silent = {
            kind: [{k: v for k, v in part.items() if k != "doc"} for part in self._interface[kind]] for kind in named
        }
        return _fingerprint({k: v for k, v in self._interface.items() if k != "summary"} | silent)

    @cached_property
    def used(self) -> Fingerprint:
        """The declarations of the operators whose nodes stand in the models."""
        return _fingerprint([as_data(o.spec) for o in self.plan.operators if o.name in self.spec.uses])

    @cached_property
    def tolerances(self) -> dict[str, Any]:
        found: dict[str, Any] = as_data(self.spec.tolerances)
        return found

    @cached_property
    def _models(self) -> list[dict[str, Any]]:
        return [as_data(model) for model in self.operator.models]

    @cached_property
    def models(self) -> Fingerprint:
        return _fingerprint(self._models)

    @cached_property
    def traced(self) -> Fingerprint:
        """What an export takes from the models: no number of their cases, and no shape but those of the first."""
        return _fingerprint(
            [
                {field: value for field, value in data.items() if field != "cases"}
                | {"shapes": [(f.name, shape_of(f.tensor)) for f in feeds(self.spec, model, model.cases[0])]}
                for model, data in zip(self.operator.models, self._models, strict=True)
            ]
        )

    @cached_property
    def data_files(self) -> tuple[Path, ...]:
        return tuple(
            folder / f"{kind}_{k}.pb"
            for model in self.operator.models
            for n, case in enumerate(model.cases)
            for folder in (self.layout.data(self.name, model.name, n),)  # made once: paths are dear by the thousand
            for kind, parts in (("input", feeds(self.spec, model, case)), ("output", self.spec.outputs))
            for k in range(len(parts))
        )

    @cached_property
    def lowered(self) -> Mapping[Lowering, str]:
        """What stands of each lowering in lowering.py: an edit of one leaves the exports of the other alone."""
        path, names = self.layout.lowering(self.name), get_args(Lowering)
        return {n: function(path, n, others={*names} - {n}) if path.is_file() else "" for n in names}

    @cached_property
    def torch_code(self) -> tuple[Path, ...]:
        """What computes on torch's side: the compiled library, or the operator in Python."""
        return (self.layout.torch_library(self.name),) if has_torch_library(self.spec) else self.torch_op

    @cached_property
    def torch_interface(self) -> tuple[Path, ...]:
        """What torch's view of the operator is made of: binding, schema, fake kernel, gradient, and no arithmetic."""
        layout, spec = self.layout, self.spec
        return (
            *(layout.generated(spec.name) / file for file in names.PYTHON),
            *self._torch_binding,
            *self.torch_op,
            *(layout.generated(name) / names.SCHEMA for name in spec.uses),
        )

    @property
    def _torch_binding(self) -> tuple[Path, ...]:
        layout, spec = self.layout, self.spec
        if self.own_torch:  # what it reads is for the compiler to know, and it may hold arithmetic as well
            return (layout.torch_library(spec.name),)
        headers = (p for p in layout.native_sources(spec.name) if p.is_relative_to(layout.binding))
        return (*(layout.generated(spec.name) / file for file in names.torch_binding(spec)), *headers)

    @cached_property
    def supported(self) -> tuple[str, ...]:
        """The models that are not declared unsupported."""
        return tuple(model.name for model in self.operator.models if not model.unsupported)

    def model_files(self, lowering: Lowering, cell: Cell) -> tuple[Path, ...]:
        """Return the models of a cell but for those declared unsupported: the manifest says whether they exist."""
        return tuple(self.layout.model(self.name, lowering, cell, name) for name in self.supported)

    def function_models(self, lowering: Lowering, cell: Cell) -> tuple[Path, ...]:
        """Return what is written with decomposed models: the custom ones with a function body."""
        names = self.supported if lowering == "decomposed" and has_function_body(self.spec) else ()
        return tuple(self.layout.function_model(self.name, cell, name) for name in names)


def steps(plan: Plan) -> Iterator[Step]:
    """Yield every step, each after those whose files it reads."""
    yield _sdk(plan)
    told: list[Path] = []
    for operator in plan.operators:
        part = _Part(plan, operator)
        yield _glue(part)
        if has_torch_library(operator.spec) or has_ort_library(operator.spec):
            yield _compile(part)
        yield _data(part)
        if operator.spec.torch:
            yield from (_register_schema(part), _register_kernel(part))
        if operator.spec.torch and not operator.spec.torch.overrides:
            yield from (_register_nodes(part), _draw(part), _register_search(part))
        if part.torch_op:  # of an operator that Python defines, the file itself says whether there is a formula
            yield _register_gradient(part)
        cells = operator.cells(plan.cells)
        for lowering in operator.spec.lowerings:
            yield from ((_node if cell.torch is None else _export)(part, lowering, cell) for cell in cells)
            if len(cells) > 1 and operator.spec.torch:
                yield _agree(part, lowering, cells)
            yield from (_verify(part, lowering, cell, crowd=cell == cells[0]) for cell in cells)
            told += [plan.layout.verdict(operator.name, lowering, cell) for cell in cells]
            told += [plan.layout.pictures(operator.name, lowering, cell) for cell in cells]
        if has_ort_library(operator.spec) and cells:
            yield _sanitize(part, cells[0])
    yield _report(plan, told)


def _sdk(plan: Plan) -> Step:
    return _step(
        plan,
        "sdk",
        writes=[plan.layout.sdk],
        setting=plan.environ.get("OPMATRIX_ORT_INCLUDE", ""),
        lost=lost_headers(plan.layout),
    )


def _glue(part: _Part) -> Step:
    folder = part.layout.generated(part.name)
    return part.step(
        "glue",
        writes=[folder / name for name in names.generated(part.spec, part.written)],
        code=names.TEMPLATES,
        spec=part.documented,
        kernel=part.spec.kernel,
        written=sorted(part.written),
    )


def _compile(part: _Part) -> Step:
    layout, name, spec = part.layout, part.name, part.spec
    ort = [layout.ort_library(name), *(() if spec.uses or OWN_ORT in part.written else layout.ort_objects(name))]
    return part.step(
        "compile",
        reads=[
            layout.sdk,
            *(layout.generated(name) / file for file in names.native(spec, part.written)),
            *(path for other in spec.uses for path in layout.ort_objects(other)),
            *layout.native_sources(name),
            *headers.files(spec, layout.root),
        ],
        writes=[
            *([layout.torch_library(name)] if has_torch_library(spec) else ()),
            *(ort if has_ort_library(spec) else ()),
        ],
        found=layout.other_headers(name),
        ninja=build_ninja(layout, spec, toolchain=part.plan.toolchain, written=part.written),
        compiler=part.plan.toolchain.identity,
        headers=headers.versions(spec),
        torch=part.plan.versions.torch if part.own_torch else "",
    )


def _data(part: _Part) -> Step:
    return part.step(
        "data",
        reads=[part.layout.reference(part.name)],
        writes=[part.layout.data_manifest(part.name), *part.data_files],
        server="onnx",
        spec=part.interface,
        models=part.models,
        **part.versions("numpy", "onnx"),
    )


def _draw(part: _Part) -> Step:
    return part.step(
        "draw",
        reads=[part.layout.reference(part.name)],
        writes=[part.layout.drawn(part.name)],
        server="onnx",
        spec=part.interface,
        models=part.models,
        **part.versions("hypothesis", "numpy"),
    )


def _register_schema(part: _Part) -> Step:
    """Keyed by the binding and the fake kernel; the arithmetic may change without it."""
    return part.register(
        "schema",
        reads=part.torch_interface,
        after=[f"compile:{part.name}"] if has_torch_library(part.spec) else [],
        server="export",
        models=part.models,
        **part.versions("onnx"),
    )


def _register_nodes(part: _Part) -> Step:
    return part.register(
        "nodes",
        reads=part.torch_interface,
        after=[f"compile:{part.name}"] if has_torch_library(part.spec) else [],
        server="export",
        models=part.models,
        lowering=part.lowered["custom"],
        **part.versions("onnx", "onnxscript"),
    )


def _register_kernel(part: _Part) -> Step:
    return part.register(
        "kernel",
        reads=[*part.torch_code, part.layout.data_manifest(part.name)],
        models=part.models,
        tolerances=part.tolerances.get("custom"),
        **part.versions("numpy"),
    )


def _register_search(part: _Part) -> Step:
    return part.register(
        "search",
        reads=[*part.torch_code, part.layout.drawn(part.name), part.layout.reference(part.name)],
        tolerances=part.tolerances.get("custom"),
        **part.versions("hypothesis", "numpy"),
    )


def _register_gradient(part: _Part) -> Step:
    """Keyed by the formula and the reference that it is the derivative of: no kernel can change whether it is."""
    return part.register(
        "gradient",
        reads=[*part.torch_op, part.layout.reference(part.name)],
        models=part.models,
        **part.versions("numpy"),
    )


def _export(part: _Part, lowering: Lowering, cell: Cell) -> Step:
    layout, spec = part.layout, part.spec
    return part.step(
        "export",
        f"-{lowering}@{cell.export_name}",
        "--lowering", lowering, "--cell", str(cell),
        reads=[
            *(layout.generated(spec.name) / file for file in names.PYTHON),
            *(layout.generated(name) / names.SCHEMA for name in spec.uses),
            *(part.torch_op if spec.torch and spec.torch.python else ()),
            *(part.model_files("custom", cell) if part.function_models(lowering, cell) else ()),
        ],
        writes=[
            layout.manifest(spec.name, lowering, cell),
            layout.pictures(spec.name, lowering, cell),
            *part.model_files(lowering, cell),
            *part.function_models(lowering, cell),
        ],
        server="export",
        spec=part.interface,
        models=part.traced,
        lowering=part.lowered[lowering],
        **part.versions("torch", "onnx", "onnxscript"),
    )  # fmt: skip


def _node(part: _Part, lowering: Lowering, cell: Cell) -> Step:
    """As an export, without torch."""
    layout, spec = part.layout, part.spec
    return part.step(
        "export",
        f"-{lowering}@{cell.export_name}",
        "--lowering", lowering, "--cell", str(cell),
        stage="node",
        reads=[layout.generated(spec.name) / names.SCHEMA],
        writes=[
            layout.manifest(spec.name, lowering, cell),
            layout.pictures(spec.name, lowering, cell),
            *part.model_files(lowering, cell),
        ],
        server="onnx",
        spec=part.interface,
        models=part.traced,
        **part.versions("onnx"),
    )  # fmt: skip


def _agree(part: _Part, lowering: Lowering, cells: Sequence[Cell]) -> Step:
    return part.step(
        "export",
        f"-{lowering}-agreement",
        "--lowering", lowering, *map(str, cells),
        stage="agree",
        command="agree",
        reads=[part.layout.manifest(part.name, lowering, cell) for cell in cells],
    )  # fmt: skip


def _verify(part: _Part, lowering: Lowering, cell: Cell, *, crowd: bool) -> Step:
    layout, spec = part.layout, part.spec
    verdict = layout.verdict(spec.name, lowering, cell)
    return part.step(
        "verify",
        f"-{lowering}@{cell}",
        "--lowering", lowering, "--cell", str(cell), *([] if crowd else ["--no-crowd"]),
        reads=[
            *([layout.ort_library(spec.name)] if lowering == "custom" and has_ort_library(spec) else ()),
            *(layout.reference(name) for name in (spec.name, *spec.uses)),
            layout.manifest(spec.name, lowering, cell),
            *part.function_models(lowering, cell),
            layout.data_manifest(spec.name),
        ],
        writes=[verdict],
        server="ort",
        verdict=verdict,
        spec=part.interface,
        used=part.used,
        models=part.models,
        tolerances=part.tolerances[lowering],
        crowd=crowd,
        **part.versions("onnx", "onnxruntime", "numpy"),
    )  # fmt: skip


def _sanitize(part: _Part, cell: Cell) -> Step:
    """Keyed by the sources, not by the libraries that ship: the same bytes may come of sound and of undefined C++."""
    layout, spec, verdict = part.layout, part.spec, part.layout.sanitized_verdict(part.name)
    compiled = [o for o in part.plan.operators if o.name in (*spec.uses, spec.name)]
    return part.step(
        "sanitize",
        "",
        "--cell", str(cell),
        reads=[
            layout.sdk,
            *(layout.generated(o.name) / file for o in compiled for file in names.native(o.spec, o.written)),
            *dict.fromkeys(path for o in compiled for path in layout.native_sources(o.name)),
            *headers.files(spec, layout.root),
            *(layout.reference(o.name) for o in compiled),
            layout.data_manifest(spec.name),
            layout.manifest(spec.name, "custom", cell),
            *([layout.drawn(spec.name)] if spec.torch else ()),
        ],
        writes=[verdict],
        after=[f"sanitize:{name}" for name in spec.uses],  # which compiles in the same folders
        verdict=verdict,
        stages=[digest(stage) for stage in ("compile", "register", "draw", "verify", "fuzz")],
        compiler=part.plan.toolchain.identity,
        flags=[*part.plan.toolchain.compiler, part.plan.toolchain.linker],
        headers=headers.versions(spec),
        written=sorted(part.written),
        spec=part.interface,
        models=part.models,
        tolerances=part.tolerances,
        **part.versions("torch", "onnx", "onnxruntime", "numpy", "hypothesis"),
    )  # fmt: skip


def _report(plan: Plan, told: Sequence[Path]) -> Step:
    """Verdicts and pictures; what a log says is new with its verdict."""
    return _step(
        plan,
        "report",
        "",
        "--opsets", plan.opsets,
        reads=told,
        writes=plan.layout.reports,
        code=TEMPLATES,
        opsets=plan.opsets,
    )  # fmt: skip


def _step(
    plan: Plan,
    group: str,
    name: str = "",
    *arguments: str,
    command: str = "",
    stage: str = "",
    reads: Iterable[Path] = (),
    writes: Iterable[Path] = (),
    code: Iterable[Path] = (),
    declared: Iterable[Path] = (),
    after: Iterable[str] = (),
    found: Path | None = None,
    server: Server | None = None,
    verdict: Path | None = None,
    **config: Any,
) -> Step:
    """Make a step of a group. Command and stage are called as the group where they are not given.

    `config` is what it depends on beside its files, `code` the files that its stage reads, such as templates.
    """
    return Step(
        group=group,
        name=name,
        command=(command or group, *arguments),
        reads=tuple(map(str, reads)),
        writes=tuple(map(str, writes)),
        config=_config(code=digest(stage or group, *code), **config),
        declared=tuple(map(str, declared)),
        found=str(found) if found else None,
        after=tuple(after),
        server=server,
        verdict=str(verdict) if verdict else None,
        seconds=plan.seconds,
        megabytes=plan.megabytes,
    )


def _config(**parts: Any) -> Config:
    fingerprints = tuple(part for part in parts.values() if isinstance(part, Fingerprint))
    return Config(json.dumps(parts, sort_keys=True), fingerprints)


def _fingerprint(data: Any) -> Fingerprint:
    """Return a digest of JSON data: declarations are large, and each of hundreds of steps keeps its `config`."""
    text = json.dumps(data, sort_keys=True)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest()[:16], lambda: text)
