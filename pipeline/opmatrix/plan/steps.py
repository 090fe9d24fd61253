"""The step graph: one function per group makes its steps, each with its key (see `opmatrix.plan.keys`).

Imports no framework, runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opmatrix.basics.version import minor
from opmatrix.codegen import generated_files
from opmatrix.declaration.checks import (
    AGREEMENT,
    CASES,
    COMPAT,
    DRAWN,
    agreement,
    draws,
    register_parts,
    runs_beyond_eager,
    searches_in_onnx_runtime,
)
from opmatrix.declaration.source_files import unfinished
from opmatrix.plan.keys import OperatorPlan, Plan, make_step
from opmatrix.plan.wheel_steps import shipping
from opmatrix.project.cells import Cell, why_unreadable
from opmatrix.records.code_hash import digest, of_features
from opmatrix.records.step import JOINT, CheckKey, Server, Step, cell_step_name
from opmatrix.report.page_template import TEMPLATES
from opmatrix.signature.signature import OWN_ORT, has_kernel_object, has_ort_library, has_torch_library
from opmatrix.spec import Lowering
from opmatrix.toolchain import headers, ninja_file
from opmatrix.toolchain.ninja_file import build_ninja, cpp_abi_ninja

# The packages that a step depends on.
_EXPORTING = ("torch", "onnx", "onnxscript")
_VERIFYING = ("onnx", "onnxruntime", "numpy")
_INSTALLING = 3600  # seconds: time limit of an environment, which downloads 200 MB


def steps(plan: Plan) -> Iterator[Step]:
    """Yield every step, each after those whose files it reads."""
    planned = _record_failures(plan, [*_reported(plan)])
    yield from planned
    for op in plan.operator_plans:
        here = [cell for cell in op.operator.cells(plan.cells) if plan.is_main(cell)]
        if here and has_ort_library(op.spec):
            yield _sanitize(op, here[0])
        if runs_beyond_eager(op.operator):
            yield from (_compat(op, torch) for torch in plan.torches)
    yield _report(plan, planned)
    yield from _probes(plan)
    yield from shipping(plan, planned)


def _reported(plan: Plan) -> Iterator[Step]:
    """Yield the steps whose failures are in the report."""
    yield from (_declaration(plan, name, mistakes) for name, mistakes in plan.failed.items())
    yield from (_environment(plan, name) for name in plan.environments)
    for op in plan.operator_plans:
        operator = op.operator
        yield _codegen(op)
        if has_torch_library(operator.spec) or has_ort_library(operator.spec):
            yield _compile(op)
        yield _data(op)
        yield _cases(op)
        if draws(operator.spec):
            yield _draw_inputs(op)
        for torch in plan.torches:
            yield from _register(op, torch)
        cells = operator.cells(plan.cells)
        # The once checks run in the first cell of each pair of torch and ONNX Runtime whose models this ONNX Runtime
        # reads. Other versions in the plan do not change which cells these are.
        once: dict[tuple[str | None, str], Cell] = {}
        for cell in cells:
            if not why_unreadable(cell):
                once.setdefault((cell.torch, cell.ort), cell)
        # A model depends on no ONNX Runtime, so neither does the step that writes it.
        exported = tuple(dict.fromkeys(replace(cell, ort=minor(plan.versions.onnxruntime)) for cell in cells))
        for lowering in operator.spec.lowerings:
            yield from (_export(op, lowering, cell) for cell in exported)
            if compared := agreement(operator, exported):
                yield _compare_exports(op, lowering, exported, compared)
            yield from (_verify(op, lowering, cell, once=once.get((cell.torch, cell.ort)) == cell) for cell in cells)


def _record_failures(plan: Plan, planned: Sequence[Step]) -> list[Step]:
    """Give each step on which no record depends a file for the record of its failure. The failure of any other step is
    in the records of the steps that it blocks."""
    by_task = {step.task: step for step in planned}
    writers = {path: step.task for step in planned for path in step.writes}
    shown: set[str] = set()
    waiting = [step.task for step in planned if step.verdict]
    while waiting:
        if (task := waiting.pop()) not in shown:
            shown.add(task)
            step = by_task[task]
            waiting += [*step.after, *{writers[path] for path in step.reads if path in writers}]
    for step in planned:
        if step.task not in shown:
            check = CheckKey(step.operator, step.group if step.operator else step.task)
            record = str(plan.paths.failure_record(step.operator, step.task))
            by_task[step.task] = replace(step, verdict=record, check=check)
    return [*by_task.values()]


def _declaration(plan: Plan, name: str, mistakes: Sequence[str]) -> Step:
    """Fail with the mistakes of an operator that cannot be used, so that no run without it is a success."""
    return make_step(
        plan,
        "declaration",
        name, "--planned",
        name=name,
        operator=name,
        command="check-declaration",
        verdict=plan.paths.declaration_record(name),
        check=CheckKey(name, "declaration"),
        mistakes=mistakes,
    )  # fmt: skip


def _environment(plan: Plan, name: str) -> Step:
    """Install another torch or ONNX Runtime in an environment of its own."""
    paths = plan.paths
    packages = (*_EXPORTING, "numpy", "hypothesis") if name.startswith("torch") else _VERIFYING
    writes = [*(paths.installed_version(name, package) for package in packages), paths.installed_packages(name)]
    step = make_step(plan, "environment", name, name=name, reads=paths.pins(name), writes=writes)
    return replace(step, seconds=_INSTALLING, written=math.inf)


def _probes(plan: Plan) -> Iterator[Step]:
    """Probe each torch and each ONNX Runtime that has cells, again when its version or the table changes."""
    paths = plan.paths
    headers = [paths.binding / f"{abi}/torch.h" for abi in ("classic", "stable")]
    probed: tuple[tuple[str, Server, tuple[str, ...], str, Mapping[str, Any]], ...] = (
        ("torch", "export", _EXPORTING, "export/dtype_probe.cc", {"reads": headers}),
        ("ort", "ort", ("onnx", "onnxruntime"), "ort_checks/dtype_probe.cc", {"ort_headers": plan.ort_headers}),
    )
    for factor, server, uses, source, more in probed:
        for version in dict.fromkeys(getattr(cell, factor) for cell in plan.cells if getattr(cell, factor)):
            environment = plan.environment(**{factor: version})
            yield make_step(
                plan,
                "probe",
                factor, *(["--version", version] if environment else []),
                name=f"{factor}{version}",
                stage=f"probe-{factor}",
                code=[Path(__file__).parents[1] / source],
                writes=[paths.probe_result(f"{factor}{version}"), paths.probe_result(f"{factor}{version}-dtypes")],
                server=server,
                environment=environment,
                uses=uses,
                **more,
            )  # fmt: skip


def _register(op: OperatorPlan, torch: str) -> Iterator[Step]:
    """Test the operator in this torch, in parts. Each is keyed only by what its result depends on."""
    parts = register_parts(op.paths, op.operator, torch)
    if not parts:
        return
    if op.needs_own_library(torch):
        yield _compile_alone(op, torch)
    reference = op.paths.reference(op.name)
    interface: Mapping[str, Any] = {
        "reads": op.torch_interface(torch),  # an edit of the kernel does not repeat these parts
        "after": op.library_steps(torch),
        "server": "export",
        **op.backward_key,
    }
    models, shapes = op.sampled_key, op.shapes_key
    yield op.register("schema", torch=torch, models=models, **shapes, **interface, uses=("onnx",))
    yield op.register(
        "kernel",
        torch=torch,
        reads=[*op.torch_code(torch), op.paths.data_manifest(op.name)],
        after=[f"data:{op.name}"],
        models=op.models_key,
        tolerances=op.tolerances.get("custom"),
        uses=("numpy",),
        **op.levels_key,
    )
    if "nodes" in parts:
        lowered = op.lowering_hashes["custom"]
        uses = ("onnx", "onnxscript")
        yield op.register("nodes", torch=torch, models=models, lowered=lowered, **interface, uses=uses)
    if "search" in parts:
        yield op.register(
            "search",
            torch=torch,
            reads=[*op.torch_code(torch), op.paths.drawn_inputs(op.name), reference],
            tolerances=op.tolerances.get("custom"),
            uses=("hypothesis", "numpy"),
            **op.reference_key,
            **op.levels_key,
        )
    if "forbidden" in parts:
        yield op.register("forbidden", torch=torch, reads=op.torch_code(torch), models=op.models_key, uses=("numpy",))
    if "gradient" in parts:
        # Not keyed by the kernel: the formula is compared with the derivative of the reference. So is the reference of
        # an operator that computes the gradient, and its kernel with that.
        formula, called = [*op.torch_op, reference, op.paths.drawn_inputs(op.name)], op.backward
        yield op.register(
            "gradient",
            torch=torch,
            reads=[*formula, *((*called.torch_op, op.paths.reference(called.name)) if called else ())],
            after=[f"register:{called.name}-{part}@torch{torch}" for part in ("kernel", "search")] if called else (),
            models=op.models_key,
            uses=("numpy",),
            **{**(called.reference_key if called else {}), **op.reference_key, **op.backward_key},
        )


def _codegen(op: OperatorPlan) -> Step:
    folder = op.paths.generated(op.name)
    return op.step(
        "codegen",
        writes=[folder / name for name in generated_files.generated(op.spec, op.handwritten_files)],
        code=generated_files.TEMPLATES,
        spec=op.codegen_key,
        kernel=op.spec.kernel,
        written=sorted(op.handwritten_files),
    )


def _compile(op: OperatorPlan) -> Step:
    paths, name, spec, handwritten = op.paths, op.name, op.spec, op.handwritten_files
    writes = [paths.torch_library(name)] if has_torch_library(spec) else []
    if op.own_torch:
        writes.append(paths.torch_version(name))
    if has_ort_library(spec):
        writes.append(paths.ort_library(name))
        if not spec.uses and OWN_ORT not in handwritten:
            writes += paths.objects(name, *ninja_file.shared_objects(spec, handwritten))
    if has_kernel_object(spec, handwritten):
        writes += paths.objects(name, "kernel", "runtime")
    if has_torch_library(spec) and not op.own_torch:
        writes += paths.objects(name, "torch", "runtime")
    writes.append(paths.compiled_record(name))
    return op.step(
        "compile",
        reads=[*op.cpp_files, *(path for other in spec.uses for path in paths.objects(other, "kernel", "ort"))],
        writes=dict.fromkeys(writes),
        discovered_inputs=paths.discovered_headers(name),
        ninja=build_ninja(paths, spec, toolchain=op.plan.toolchain, written=handwritten),
        compiler=op.plan.toolchain.identity,
        ort_headers=op.plan.ort_headers,
        headers=headers.versions(spec),
        torch=op.plan.versions.torch if op.own_torch else "",
    )


def _compile_alone(op: OperatorPlan, torch: str) -> Step:
    """Compile the library for one torch, with the headers of its environment."""
    paths, name, spec = op.paths, op.name, op.spec
    environment = f"torch{torch}"
    return op.step(
        "compile",
        f"@{environment}",
        "--torch-root", str(paths.environment(environment).relative_to(paths.root)),
        reads=[
            *op.cpp_files,
            *(paths.objects(name, "kernel", "runtime") if has_kernel_object(spec, op.handwritten_files) else ()),
            paths.installed_version(environment, "torch"),
        ],
        writes=[
            paths.torch_library(name, torch=torch),
            paths.torch_version(name, torch=torch),
            *(() if op.own_torch else paths.objects(name, "torch", torch=torch)),
        ],
        after=[f"compile:{name}"],
        discovered_inputs=paths.discovered_headers(name, torch=torch),
        ninja=cpp_abi_ninja(paths, spec, toolchain=op.plan.toolchain, written=op.handwritten_files),
        compiler=op.plan.toolchain.identity,
        ort_headers=op.plan.ort_headers,
        headers=headers.versions(spec),
    )  # fmt: skip


def _data(op: OperatorPlan) -> Step:
    calls = [op.paths.reference_calls(op.name)] if op.spec.reference == "torch" else []
    return op.step(
        "data",
        reads=[*op.reference_files, *op.vectors],
        writes=[op.paths.data_manifest(op.name), *op.data_files, *calls],
        server="onnx",
        spec=op.runtime_key,
        models=op.models_key,
        uses=("numpy", "onnx"),
        **op.reference_key,
    )


def _cases(op: OperatorPlan) -> Step:
    """Keyed by no kernel and no library: reference, cases, tolerances and dtypes decide what cases can show."""
    spec, record = op.spec, op.paths.cases_record(op.name)
    return op.step(
        "cases",
        reads=[*op.reference_files, op.paths.data_manifest(op.name)],
        after=[f"data:{op.name}"],
        writes=[record],
        server="onnx",
        verdict=record,
        check=CheckKey(op.name, CASES),
        spec=op.runtime_key,
        models=op.models_key,
        tolerances={lowering: op.tolerances[lowering] for lowering in spec.lowerings},
        no_effect=[[part.no_effect for part in parts] for parts in (spec.inputs, spec.attributes, spec.outputs)],
        unfinished=unfinished(op.paths, op.name, "spec.py", "cases.py"),
        uses=("numpy", "onnx"),
        **op.reference_key,
    )


def _draw_inputs(op: OperatorPlan) -> Step:
    searched = searches_in_onnx_runtime(op.spec)
    record = [op.paths.drawn_record(op.name)] if searched else []
    return op.step(
        "draw-inputs",
        reads=op.reference_files,
        writes=[op.paths.drawn_inputs(op.name), *record],
        server="onnx",
        verdict=record[0] if searched else None,
        check=CheckKey(op.name, DRAWN) if searched else None,
        spec=op.runtime_key,
        models=op.models_key,
        uses=("hypothesis", "numpy"),
        **op.reference_key,
    )


def _export(op: OperatorPlan, lowering: Lowering, cell: Cell) -> Step:
    """Write the models of a cell: by an exporter of torch, or, where the cell has no torch, by the exporter `node`."""
    paths, spec = op.paths, op.spec
    bodies = op.function_models(lowering, cell) if cell.torch else ()
    if cell.torch:
        python = op.torch_op if spec.torch and spec.torch.python else ()
        made: Mapping[str, Any] = {
            "reads": [*op.export_modules, *python, *(op.model_files("custom", cell) if bodies else ())],
            "server": "export",
            "lowered": op.lowering_hashes[lowering],
            "environment": op.plan.environment(torch=cell.torch),
            "uses": _EXPORTING,
        }
    else:
        schema = paths.generated(spec.name) / generated_files.SCHEMA
        made = {"stage": "export-node", "reads": [schema], "server": "onnx", "uses": ("onnx",)}
    return op.cell_step(
        "export",
        lowering,
        cell,
        writes=[
            paths.manifest(spec.name, lowering, cell),
            paths.graph_drawings(spec.name, lowering, cell),
            *op.model_files(lowering, cell),
            *bodies,
        ],
        spec=op.runtime_key,
        models=op.export_key,
        **made,
    )


def _compare_exports(op: OperatorPlan, lowering: Lowering, cells: Sequence[Cell], torch: str) -> Step:
    record = op.paths.agreement(op.name, lowering, torch=torch)
    return op.step(
        "export",
        f"-{lowering}-{AGREEMENT}@torch{torch}",
        "--lowering", lowering, *map(str, cells),
        lowering=lowering,
        command=JOINT,
        reads=[op.paths.manifest(op.name, lowering, cell) for cell in cells],
        writes=[record],
        verdict=record,
        check=CheckKey(op.name, AGREEMENT, lowering, torch),
    )  # fmt: skip


def _verify(op: OperatorPlan, lowering: Lowering, cell: Cell, *, once: bool) -> Step:
    paths, spec = op.paths, op.spec
    verdict = paths.verdict(spec.name, lowering, cell)
    searched = lowering == "custom" and once and searches_in_onnx_runtime(spec)
    return op.cell_step(
        "verify",
        lowering,
        cell,
        *([] if once else ["--skip-once-checks"]),
        reads=[
            *([paths.ort_library(spec.name)] if lowering == "custom" and has_ort_library(spec) else ()),
            *(paths.reference(name) for name in (spec.name, *spec.uses)),
            paths.manifest(spec.name, lowering, cell),
            *op.function_models(lowering, cell),
            paths.data_manifest(spec.name),
            *(op.published_files if lowering == "custom" and once else ()),
            *([paths.drawn_inputs(spec.name)] if searched else ()),
        ],
        after=[f"data:{op.name}", f"export:{cell_step_name('export', op.name, lowering, cell)}"],
        writes=[verdict],
        links=op.data_links(lowering, cell),
        server="ort",
        verdict=verdict,
        spec=op.runtime_key,
        used=op.used_key,
        models=op.models_key,
        tolerances=op.tolerances[lowering],
        once=once,
        published=op.operator.published if lowering == "custom" else (),
        environment=op.plan.environment(ort=cell.ort),
        uses=_VERIFYING,
        **op.reference_key,
        **(op.levels_key if lowering == "custom" else {}),
    )  # fmt: skip


def _sanitize(op: OperatorPlan, cell: Cell) -> Step:
    """Keyed by the sources, not by the libraries that ship: C++ with undefined behaviour may compile to equal bytes."""
    paths, spec, verdict = op.paths, op.spec, op.paths.sanitized_verdict(op.name)
    compiled = [op if o is op.operator else OperatorPlan(op.plan, o) for o in op.plan.named([*spec.uses, op.name])]
    return op.step(
        "sanitize",
        "",
        "--cell", str(cell),
        lowering="custom",
        cell=cell,
        reads=[
            *dict.fromkeys(path for o in compiled for path in o.cpp_files),
            *(paths.reference(o.name) for o in compiled),
            paths.data_manifest(spec.name),
            paths.manifest(spec.name, "custom", cell),
            *([paths.drawn_inputs(spec.name)] if draws(spec) else ()),
        ],
        writes=[verdict],
        after=[f"sanitize:{name}" for name in spec.uses],  # which compiles in the same folders
        verdict=verdict,
        stages=[digest(stage) for stage in ("compile", "register", "draw-inputs", "verify", "ort-fuzz")],
        races=digest("races", *generated_files.TEMPLATES),
        compiler=op.plan.toolchain.identity,
        linker=op.plan.toolchain.linker,
        ort_headers=op.plan.ort_headers,
        headers=headers.versions(spec),
        written=sorted(op.handwritten_files),
        spec=op.runtime_key,
        models=op.models_key,
        tolerances=op.tolerances,
        uses=("torch", "onnx", "onnxruntime", "numpy", "hypothesis"),
        **op.levels_key,
        **op.reference_key,
    )  # fmt: skip


def _compat(op: OperatorPlan, torch: str) -> Step:
    """Run the operator in torch beyond eager mode: keyed by the library and by what registers it."""
    environment, record = op.plan.environment(torch=torch), op.paths.compat_record(op.name, torch=torch)
    called = [*op.backward.torch_code(torch), *op.backward.torch_interface(torch)] if op.backward else []
    return op.step(
        COMPAT,
        f"@torch{torch}",
        *(["--torch", torch] if environment else []),
        reads=dict.fromkeys([*op.torch_code(torch), *op.export_modules, *op.torch_op, *called]),
        writes=[record],
        verdict=record,
        check=CheckKey(op.name, COMPAT, torch=torch),
        compiler=op.plan.toolchain.identity,
        spec=op.runtime_key,
        models=op.models_key,
        server="torch",
        environment=environment,
        uses=("torch", "numpy"),
        **op.backward_key,
    )


def _report(plan: Plan, planned: Sequence[Step]) -> Step:
    """Keyed by verdicts and check records: when a graph drawing changes, so does its verdict. A drawing that a
    failed export did not write does not prevent the report. The engine lists the records that only failures write.

    Not keyed by the choice of cells: the report also covers the other verdicts, and is the same for every choice.
    """
    recorded = [step for step in planned if step.verdict]
    return make_step(
        plan,
        "report",
        asks=[
            *(word for name, value in vars(plan.choice).items() for word in (f"--{name}", value)),
            *([] if plan.failed else ["--checked"]),
        ],
        declared=[path for o in plan.operators for path in (plan.paths.spec(o.name), plan.paths.cases(o.name))],
        reads=[str(step.verdict) for step in recorded if step.verdict in step.writes],
        after=[step.task for step in recorded if step.verdict not in step.writes],
        any_cell=any(step.group == "verify" for step in planned),  # without one it fails
        operators={o.name: o.cell_condition for o in plan.operators},  # the report drops other cells
        drawn=[digest("export"), digest("export-node"), digest("register")],
        discovered_inputs=plan.paths.verdict_list,
        writes=plan.paths.report_files,
        code=[*TEMPLATES, *of_features("mutation", "bench")],
    )  # fmt: skip
