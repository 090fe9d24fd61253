"""Plan: declarations and matrix in, steps out. Imports no framework, runs nothing.

A step is keyed by the files that it reads and by its `config`: the fields of the declaration that it uses (not the
file spec.py), the versions that it depends on, and the code of its stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import code
from pipeline.glue import names
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.matrix import Cell
from pipeline.native_build import build_ninja
from pipeline.project import Versions, minor
from pipeline.spec import Lowering, Model, OpSpec, as_data, shape_of
from pipeline.step import Step
from pipeline.toolchain import Toolchain


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


def steps(plan: Plan) -> Iterator[Step]:
    """Yield every step, each after those whose files it reads."""
    yield _sdk(plan)
    verdicts: list[Path] = []
    for operator in plan.operators:
        yield _glue(plan, operator)
        yield _compile(plan, operator)
        yield _data(plan, operator)
        yield _register_schema(plan, operator)
        yield _register_kernel(plan, operator)
        cells = tuple(c for c in plan.cells if c.opset >= operator.spec.min_opset)
        for lowering in operator.spec.lowerings:
            yield from (_export(plan, operator, lowering, cell) for cell in cells)
            if len(cells) > 1:
                yield _agree(plan, operator, lowering, cells)
            yield from (_verify(plan, operator, lowering, cell) for cell in cells)
            verdicts += [plan.layout.verdict(operator.name, lowering, cell) for cell in cells]
    yield _report(plan, verdicts)


def _sdk(plan: Plan) -> Step:
    """The headers lie outside the checkout, so it is asked anew when one of them changed or went away."""
    listed = _headers(plan.layout)
    return Step(
        group="sdk",
        name="",
        command=("sdk",),
        reads=tuple(path for path in listed if path.is_file()),
        writes=(plan.layout.sdk,),
        config=_config("sdk", setting=plan.environ.get("OPMATRIX_ORT_INCLUDE", "")),
        seconds=plan.seconds,
    )


def _headers(layout: Layout) -> tuple[Path, ...]:
    """Return the headers that the sdk stage found when it last ran."""
    try:
        found = json.loads(layout.sdk.read_text())
        return tuple(Path(found["path"]) / name for name in found["files"])
    except (FileNotFoundError, ValueError, KeyError):  # never ran, or was edited: the step writes it anew
        return ()


def _glue(plan: Plan, operator: Operator) -> Step:
    folder = plan.layout.generated(operator.name)
    return Step(
        group="glue",
        name=operator.name,
        command=("glue", operator.name),
        writes=tuple(folder / name for name in names.generated(operator.name)),
        config=_config("glue", *names.TEMPLATES, spec=_interface(operator.spec)),
        seconds=plan.seconds,
    )


def _compile(plan: Plan, operator: Operator) -> Step:
    layout, name = plan.layout, operator.name
    generated = [layout.generated(name) / file for file in names.native(name)]
    return Step(
        group="compile",
        name=name,
        command=("compile", name),
        reads=(layout.sdk, *generated, *layout.native_sources(name)),
        writes=(layout.torch_library(name), layout.ort_library(name)),
        config=_config(
            "compile",
            ninja=build_ninja(layout, name, toolchain=plan.toolchain),
            compiler=plan.toolchain.identity,
        ),
        seconds=plan.seconds,
    )


def _data(plan: Plan, operator: Operator) -> Step:
    return Step(
        group="data",
        name=operator.name,
        command=("data", operator.name),
        reads=(plan.layout.reference(operator.name),),
        writes=_data_files(plan, operator),
        config=_config(
            "data",
            spec=_interface(operator.spec),
            models=operator.models,
            numpy=plan.versions.numpy,
            onnx=plan.versions.onnx,
        ),
        server="onnx",
        seconds=plan.seconds,
    )


def _register_schema(plan: Plan, operator: Operator) -> Step:
    """Keyed by the binding and the fake kernel; the arithmetic may change without it."""
    layout, spec = plan.layout, operator.spec
    bindings = [layout.generated(spec.name) / file for file in (*names.PYTHON, *names.torch_binding())]
    headers = [p for p in layout.native_sources(spec.name) if p.is_relative_to(layout.binding)]
    return Step(
        group="register",
        name=f"{spec.name}-schema@torch{minor(plan.versions.torch)}",
        command=("register", spec.name, "--part", "schema"),
        reads=(*bindings, *headers),
        writes=(layout.registered(spec.name, "schema", torch=minor(plan.versions.torch)),),
        config=_config(
            "register",
            spec=_interface(spec),
            models=operator.models,
            torch=plan.versions.torch,
            onnx=plan.versions.onnx,
            onnxscript=plan.versions.onnxscript,
        ),
        after=(f"compile:{spec.name}",),
        server="export",
        seconds=plan.seconds,
    )


def _register_kernel(plan: Plan, operator: Operator) -> Step:
    layout, spec = plan.layout, operator.spec
    return Step(
        group="register",
        name=f"{spec.name}-kernel@torch{minor(plan.versions.torch)}",
        command=("register", spec.name, "--part", "kernel"),
        reads=(layout.torch_library(spec.name), *_data_files(plan, operator)),
        writes=(layout.registered(spec.name, "kernel", torch=minor(plan.versions.torch)),),
        config=_config(
            "register",
            spec=_interface(spec),
            models=operator.models,
            tolerances=spec.tolerances,
            torch=plan.versions.torch,
            numpy=plan.versions.numpy,
        ),
        server="torch",
        seconds=plan.seconds,
    )


def _export(plan: Plan, operator: Operator, lowering: Lowering, cell: Cell) -> Step:
    layout, spec = plan.layout, operator.spec
    return Step(
        group="export",
        name=f"{spec.name}-{lowering}@{cell.export_name}",
        command=("export", spec.name, "--lowering", lowering, "--cell", str(cell)),
        reads=tuple(layout.generated(spec.name) / file for file in names.PYTHON),
        writes=(
            layout.manifest(spec.name, lowering, cell),
            *(layout.model(spec.name, lowering, cell, model.name) for model in operator.models),
        ),
        config=_config(
            "export",
            spec=_interface(spec),
            models=[_traced(model) for model in operator.models],
            torch=plan.versions.torch,
            onnx=plan.versions.onnx,
            onnxscript=plan.versions.onnxscript,
        ),
        server="export",
        seconds=plan.seconds,
    )


def _agree(plan: Plan, operator: Operator, lowering: Lowering, cells: Sequence[Cell]) -> Step:
    name = operator.name
    return Step(
        group="export",
        name=f"{name}-{lowering}-agreement",
        command=("agree", name, "--lowering", lowering, *map(str, cells)),
        reads=tuple(plan.layout.manifest(name, lowering, cell) for cell in cells),
        config=_config("export"),
        server="export",
        seconds=plan.seconds,
    )


def _verify(plan: Plan, operator: Operator, lowering: Lowering, cell: Cell) -> Step:
    layout, spec = plan.layout, operator.spec
    verdict = layout.verdict(spec.name, lowering, cell)
    return Step(
        group="verify",
        name=f"{spec.name}-{lowering}@{cell}",
        command=("verify", spec.name, "--lowering", lowering, "--cell", str(cell)),
        reads=(
            layout.ort_library(spec.name),
            layout.reference(spec.name),
            *(layout.model(spec.name, lowering, cell, model.name) for model in operator.models),
            *_data_files(plan, operator),
        ),
        writes=(verdict,),
        config=_config(
            "verify",
            spec=_interface(spec),
            models=operator.models,
            tolerances=spec.tolerances.get(lowering),
            onnx=plan.versions.onnx,
            onnxruntime=plan.versions.onnxruntime,
            numpy=plan.versions.numpy,
        ),
        server="ort",
        verdict=verdict,
        seconds=plan.seconds,
    )


def _report(plan: Plan, verdicts: Sequence[Path]) -> Step:
    return Step(
        group="report",
        name="",
        command=("report", "--opsets", plan.opsets),
        reads=tuple(verdicts),
        writes=(plan.layout.report / "report.json", plan.layout.report / "junit.xml"),
        config=_config("report", opsets=plan.opsets),
        seconds=plan.seconds,
    )


def _config(stage: str, *files: Path, **parts: Any) -> str:
    """Return what a step depends on beside its files, as canonical JSON; `files` are code that the stage reads."""
    return json.dumps(as_data({"code": code.digest(stage, *files), **parts}), sort_keys=True)


def _interface(spec: OpSpec) -> dict[str, Any]:
    """Return the fields of a declaration that bindings and graphs follow from: all but tolerances and lowerings."""
    bare: dict[str, Any] = as_data(spec)
    for field in ("tolerances", "lowerings", "min_opset"):
        del bare[field]
    return bare


def _traced(model: Model) -> dict[str, Any]:
    """Return what an export takes from a model: no number of its cases, and no shape but those of the first."""
    fields = {k: v for k, v in as_data(model).items() if k != "cases"}
    return fields | {"shapes": {name: shape_of(t) for name, t in model.cases[0].inputs.items()}}


def _data_files(plan: Plan, operator: Operator) -> tuple[Path, ...]:
    spec = operator.spec
    return tuple(
        plan.layout.data(spec.name, model.name, n) / f"{kind}_{k}.pb"
        for model in operator.models
        for n in range(len(model.cases))
        for kind, count in (("input", len(spec.inputs)), ("output", len(spec.outputs)))
        for k in range(count)
    )
