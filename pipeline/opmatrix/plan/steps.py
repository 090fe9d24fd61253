"""Plan: declarations and matrix in, steps out. Imports no framework, runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opmatrix.code_hash import digest
from opmatrix.codegen import generated_files
from opmatrix.codegen.generated_files import cpp_files
from opmatrix.declaration.torch_signature import OWN_ORT, has_kernel_object, has_ort_library, has_torch_library
from opmatrix.matrix.cells import Cell, why_unreadable
from opmatrix.plan.step_keys import OperatorPlan, Plan, make_step
from opmatrix.plan.wheel_steps import shipping
from opmatrix.project.settings import lost_headers
from opmatrix.report.html_template import TEMPLATES
from opmatrix.spec import Lowering
from opmatrix.step import Server, Step
from opmatrix.toolchain import ninja_file, third_party_headers
from opmatrix.toolchain.ninja_file import build_ninja, cpp_abi_ninja
from opmatrix.version import minor

__all__ = ["Plan", "steps"]

# The packages that an export and a verification depend on.
_EXPORTING = ("torch", "onnx", "onnxscript")
_VERIFYING = ("onnx", "onnxruntime", "numpy")
_INSTALLING = 3600  # seconds that an environment may take: a download of 200 MB


def steps(plan: Plan) -> Iterator[Step]:
    """Yield every step, each after those whose files it reads."""
    yield _sdk(plan)
    yield from (_environment(plan, name) for name in plan.environments)
    verdicts: list[Path] = []
    for operator in plan.operators:
        op = OperatorPlan(plan, operator)
        yield _glue(op)
        if has_torch_library(operator.spec) or has_ort_library(operator.spec):
            yield _compile(op)
        yield _data(op)
        if operator.spec.torch and not operator.spec.torch.overrides:
            yield _draw(op)
        for torch in plan.torches:
            yield from _register(op, torch)
        cells = operator.cells(plan.cells)
        # A model depends on no ONNX Runtime, and so nor does the step that writes it.
        exported = tuple(dict.fromkeys(replace(cell, ort=minor(plan.versions.onnxruntime)) for cell in cells))
        for lowering in operator.spec.lowerings:
            yield from (_export(op, lowering, cell) for cell in exported)
            if len(exported) > 1 and operator.spec.torch:
                yield _compare_exports(op, lowering, exported)
            once_cells = _once_cells(cells)
            yield from (_verify(op, lowering, cell, once=cell in once_cells) for cell in cells)
            verdicts += [plan.layout.verdict(operator.name, lowering, cell) for cell in cells]
        if has_ort_library(operator.spec) and (here := [cell for cell in cells if plan.is_main(cell)]):
            yield _sanitize(op, here[0])
    yield _report(plan, verdicts)
    yield from _probes(plan)
    yield from shipping(plan)


def _once_cells(cells: Iterable[Cell]) -> set[Cell]:
    """Return the first cell of each torch in each ONNX Runtime, of those that it reads: what is tried once stands
    there, whatever other versions are planned beside them."""
    first: dict[tuple[str | None, str], Cell] = {}
    for cell in cells:
        if not why_unreadable(cell):
            first.setdefault((cell.torch, cell.ort), cell)
    return {*first.values()}


def _environment(plan: Plan, name: str) -> Step:
    """Make the environment of another torch or ONNX Runtime."""
    layout = plan.layout
    packages = (*_EXPORTING, "numpy", "hypothesis") if name.startswith("torch") else _VERIFYING
    return make_step(
        plan,
        "environment",
        name,
        name=name,
        reads=layout.pins(name),
        writes=[layout.installed(name, package) for package in packages],
        seconds=_INSTALLING,
    )


def _probes(plan: Plan) -> Iterator[Step]:
    """Measure each torch and each ONNX Runtime that has cells: once, and anew with another version or table."""
    probed: tuple[tuple[str, Server, tuple[str, ...]], ...] = (
        ("torch", "export", _EXPORTING),
        ("ort", "ort", ("onnx", "onnxruntime")),
    )
    for factor, server, uses in probed:
        for version in dict.fromkeys(getattr(cell, factor) for cell in plan.cells if getattr(cell, factor)):
            environment = plan.environment(**{factor: version})
            yield make_step(
                plan,
                "probe",
                factor, *(["--version", version] if environment else []),
                name=f"{factor}{version}",
                stage=f"probe_{factor}",
                writes=[plan.layout.probed(f"{factor}{version}")],
                server=server,
                environment=environment,
                uses=uses,
            )  # fmt: skip


def _register(op: OperatorPlan, torch: str) -> Iterator[Step]:
    """Prove each part of what this torch is given, keyed by no more than the part follows from."""
    if not op.spec.torch or not op.has_torch_side(torch):
        return
    if op.needs_own_library(torch):
        yield _compile_alone(op, torch)
    keys, reference, own = op.keys, op.layout.reference(op.name), not op.spec.torch.overrides
    interface: Mapping[str, Any] = {
        "reads": op.torch_interface(torch),  # binding and fake kernel: the arithmetic may change without it
        "after": op.compiled(torch),
        "server": "export",
        "models": keys.models,
    }
    yield op.register("schema", torch=torch, **interface, uses=("onnx",))
    yield op.register(
        "kernel",
        torch=torch,
        reads=[*op.torch_code(torch), op.layout.data_manifest(op.name)],
        models=keys.models,
        tolerances=keys.tolerances.get("custom"),
        uses=("numpy",),
    )
    if own:
        lowered = keys.lowerings["custom"]
        yield op.register("nodes", torch=torch, **interface, lowered=lowered, uses=("onnx", "onnxscript"))
        yield op.register(
            "search",
            torch=torch,
            reads=[*op.torch_code(torch), op.layout.drawn(op.name), reference],
            tolerances=keys.tolerances.get("custom"),
            uses=("hypothesis", "numpy"),
        )
    if op.torch_op:  # of an operator that Python defines, the file itself says whether there is a formula
        # Not keyed by the kernel: no kernel can change whether the formula is the reference's derivative.
        formula = [*op.torch_op, reference]
        yield op.register("gradient", torch=torch, reads=formula, models=keys.models, uses=("numpy",))


def _sdk(plan: Plan) -> Step:
    return make_step(
        plan,
        "headers",
        writes=[plan.layout.sdk],
        setting=plan.environ.get("OPMATRIX_ORT_INCLUDE", ""),
        lost=lost_headers(plan.layout),
    )


def _glue(op: OperatorPlan) -> Step:
    folder = op.layout.generated(op.name)
    return op.step(
        "codegen",
        writes=[folder / name for name in generated_files.generated(op.spec, op.written)],
        code=generated_files.TEMPLATES,
        spec=op.keys.codegen,
        kernel=op.spec.kernel,
        written=sorted(op.written),
    )


def _compile(op: OperatorPlan) -> Step:
    layout, name, spec = op.layout, op.name, op.spec
    linked = not spec.uses and OWN_ORT not in op.written
    shared = layout.objects(name, *ninja_file.shared(spec, op.written)) if linked else ()
    return op.step(
        "compile",
        reads=[
            layout.sdk,
            *(layout.generated(name) / file for file in cpp_files(spec, op.written)),
            *(path for other in spec.uses for path in layout.objects(other, "kernel", "ort")),
            *layout.native_sources(name),
            *third_party_headers.files(spec, layout.root),
        ],
        writes=[
            *([layout.torch_library(name)] if has_torch_library(spec) else ()),
            *dict.fromkeys(
                [
                    *([layout.ort_library(name), *shared] if has_ort_library(spec) else ()),
                    *(layout.objects(name, "kernel", "runtime") if has_kernel_object(spec, op.written) else ()),
                ]
            ),
        ],
        found=layout.other_headers(name),
        ninja=build_ninja(layout, spec, toolchain=op.plan.toolchain, written=op.written),
        compiler=op.plan.toolchain.identity,
        headers=third_party_headers.versions(spec),
        torch=op.plan.versions.torch if op.own_torch else "",
    )


def _compile_alone(op: OperatorPlan, torch: str) -> Step:
    """Compile the library for one torch, in whose environment its headers are."""
    layout, name, spec = op.layout, op.name, op.spec
    environment = f"torch{torch}"
    return op.step(
        "compile",
        f"@{environment}",
        "--torch-root", str(layout.environment(environment).relative_to(layout.root)),
        reads=[
            layout.sdk,
            *(layout.generated(name) / file for file in cpp_files(spec, op.written)),
            *(layout.objects(name, "kernel", "runtime") if has_kernel_object(spec, op.written) else ()),
            *layout.native_sources(name),
            *third_party_headers.files(spec, layout.root),
            layout.installed(environment, "torch"),
        ],
        writes=[layout.torch_library(name, torch=torch)],
        after=[f"compile:{name}"],
        found=layout.other_headers(name, torch=torch),
        ninja=cpp_abi_ninja(layout, spec, toolchain=op.plan.toolchain, written=op.written),
        compiler=op.plan.toolchain.identity,
        headers=third_party_headers.versions(spec),
    )  # fmt: skip


def _data(op: OperatorPlan) -> Step:
    return op.step(
        "data",
        reads=[op.layout.reference(op.name)],
        writes=[op.layout.data_manifest(op.name), *op.data_files],
        server="onnx",
        spec=op.keys.runtime,
        models=op.keys.models,
        uses=("numpy", "onnx"),
    )


def _draw(op: OperatorPlan) -> Step:
    return op.step(
        "draw-inputs",
        reads=[op.layout.reference(op.name)],
        writes=[op.layout.drawn(op.name)],
        server="onnx",
        spec=op.keys.runtime,
        models=op.keys.models,
        uses=("hypothesis", "numpy"),
    )


def _export(op: OperatorPlan, lowering: Lowering, cell: Cell) -> Step:
    """Write the models of a cell: by an exporter of torch, or, where the cell has no torch, by the exporter `node`."""
    layout, spec = op.layout, op.spec
    bodies = op.function_models(lowering, cell) if cell.torch else ()
    made: Mapping[str, Any] = {
        "stage": "node",
        "reads": [layout.generated(spec.name) / generated_files.SCHEMA],
        "server": "onnx",
        "uses": ("onnx",),
    }
    if cell.torch:
        made = {
            "reads": [
                *(layout.generated(spec.name) / file for file in generated_files.PYTHON),
                *(layout.generated(name) / generated_files.SCHEMA for name in spec.uses),
                *(op.torch_op if spec.torch and spec.torch.python else ()),
                *(op.model_files("custom", cell) if bodies else ()),
            ],
            "server": "export",
            "lowered": op.keys.lowerings[lowering],
            "environment": op.plan.environment(torch=cell.torch),
            "uses": _EXPORTING,
        }
    return op.cell_step(
        "export",
        lowering,
        cell,
        writes=[
            layout.manifest(spec.name, lowering, cell),
            layout.pictures(spec.name, lowering, cell),
            *op.model_files(lowering, cell),
            *bodies,
        ],
        spec=op.keys.runtime,
        models=op.keys.export,
        **made,
    )


def _compare_exports(op: OperatorPlan, lowering: Lowering, cells: Sequence[Cell]) -> Step:
    return op.step(
        "export",
        f"-{lowering}-agreement@torch{'+'.join(dict.fromkeys(c.torch for c in cells if c.torch))}",
        "--lowering", lowering, *map(str, cells),
        lowering=lowering,
        stage="compare-exports",
        command="compare-exports",
        reads=[op.layout.manifest(op.name, lowering, cell) for cell in cells],
    )  # fmt: skip


def _verify(op: OperatorPlan, lowering: Lowering, cell: Cell, *, once: bool) -> Step:
    layout, spec = op.layout, op.spec
    verdict = layout.verdict(spec.name, lowering, cell)
    return op.cell_step(
        "verify",
        lowering,
        cell,
        *([] if once else ["--skip-once-checks"]),
        reads=[
            *([layout.ort_library(spec.name)] if lowering == "custom" and has_ort_library(spec) else ()),
            *(layout.reference(name) for name in (spec.name, *spec.uses)),
            layout.manifest(spec.name, lowering, cell),
            *op.function_models(lowering, cell),
            layout.data_manifest(spec.name),
            *(op.published_files if lowering == "custom" and once else ()),
        ],
        writes=[verdict],
        server="ort",
        verdict=verdict,
        spec=op.keys.runtime,
        used=op.keys.used,
        models=op.keys.models,
        tolerances=op.keys.tolerances[lowering],
        once=once,
        published=op.operator.published if lowering == "custom" else (),
        environment=op.plan.environment(ort=cell.ort),
        uses=_VERIFYING,
    )  # fmt: skip


def _sanitize(op: OperatorPlan, cell: Cell) -> Step:
    """Keyed by the sources, not by the libraries that ship: the same bytes may come of sound and of undefined C++."""
    layout, spec, verdict = op.layout, op.spec, op.layout.sanitized_verdict(op.name)
    compiled = [o for o in op.plan.operators if o.name in (*spec.uses, spec.name)]
    return op.step(
        "sanitize",
        "",
        "--cell", str(cell),
        lowering="custom",
        cell=cell,
        reads=[
            layout.sdk,
            *(layout.generated(o.name) / f for o in compiled for f in cpp_files(o.spec, o.handwritten_files)),
            *dict.fromkeys(path for o in compiled for path in layout.native_sources(o.name)),
            *third_party_headers.files(spec, layout.root),
            *(layout.reference(o.name) for o in compiled),
            layout.data_manifest(spec.name),
            layout.manifest(spec.name, "custom", cell),
            *([layout.drawn(spec.name)] if spec.torch else ()),
        ],
        writes=[verdict],
        after=[f"sanitize:{name}" for name in spec.uses],  # which compiles in the same folders
        verdict=verdict,
        stages=[digest(stage) for stage in ("compile", "register", "draw-inputs", "verify", "ort-fuzz")],
        compiler=op.plan.toolchain.identity,
        flags=[*op.plan.toolchain.compiler, op.plan.toolchain.linker],
        headers=third_party_headers.versions(spec),
        written=sorted(op.written),
        spec=op.keys.runtime,
        models=op.keys.models,
        tolerances=op.keys.tolerances,
        uses=("torch", "onnx", "onnxruntime", "numpy", "hypothesis",),
    )  # fmt: skip


def _report(plan: Plan, verdicts: Sequence[Path]) -> Step:
    """Keyed by verdicts: what a log says, and a picture of another model, is new with its verdict. So a picture that is
    missing, since its export failed, does not keep the report from being written.

    Not keyed by the choice of cells: the report covers what stands beside them, and is the same for every choice.
    """
    return make_step(
        plan,
        "report",
        asks=[word for name, value in vars(plan.choice).items() for word in (f"--{name}", value)],
        reads=verdicts,
        any_cell=bool(verdicts),  # without one it fails
        operators={o.name: o.cell_condition for o in plan.operators},  # a cell that is no longer theirs goes away
        drawn=[digest("export"), digest("export-node"), digest("register")],
        found=plan.layout.covered,
        writes=plan.layout.reports,
        code=TEMPLATES,
    )  # fmt: skip
