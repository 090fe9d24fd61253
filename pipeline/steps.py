"""Plan: declarations and matrix in, steps out. Imports no framework, runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.code import digest
from pipeline.dist.steps import shipping
from pipeline.glue import names
from pipeline.keys import Part, Plan, make_step
from pipeline.matrix import Cell, unreadable
from pipeline.project import lost_headers
from pipeline.report.template import TEMPLATES
from pipeline.schema import OWN_ORT, has_kernel_object, has_ort_library, has_torch_library
from pipeline.spec import Lowering
from pipeline.step import Server, Step
from pipeline.toolchain import headers, native_build
from pipeline.toolchain.native_build import build_ninja, classic_ninja
from pipeline.version import minor

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
        part = Part(plan, operator)
        yield _glue(part)
        if has_torch_library(operator.spec) or has_ort_library(operator.spec):
            yield _compile(part)
        yield _data(part)
        if operator.spec.torch and not operator.spec.torch.overrides:
            yield _draw(part)
        for torch in plan.torches:
            yield from _register(part, torch)
        cells = operator.cells(plan.cells)
        # A model depends on no ONNX Runtime, and so nor does the step that writes it.
        exported = tuple(dict.fromkeys(replace(cell, ort=minor(plan.versions.onnxruntime)) for cell in cells))
        for lowering in operator.spec.lowerings:
            yield from ((_node if cell.torch is None else _export)(part, lowering, cell) for cell in exported)
            if len(exported) > 1 and operator.spec.torch:
                yield _agree(part, lowering, exported)
            firsts = _first_ones(cells)
            yield from (_verify(part, lowering, cell, first=cell in firsts) for cell in cells)
            verdicts += [plan.layout.verdict(operator.name, lowering, cell) for cell in cells]
        if has_ort_library(operator.spec) and (here := [cell for cell in cells if plan.is_main(cell)]):
            yield _sanitize(part, here[0])
    yield _report(plan, verdicts)
    yield from _probes(plan)
    yield from shipping(plan)


def _first_ones(cells: Iterable[Cell]) -> set[Cell]:
    """Return the first cell of each torch in each ONNX Runtime, of those that it reads: what is tried once stands
    there, whatever other versions are planned beside them."""
    first: dict[tuple[str | None, str], Cell] = {}
    for cell in cells:
        if not unreadable(cell):
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
        name,
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
                f"{factor}{version}",
                factor, *(["--version", version] if environment else []),
                stage=f"probe_{factor}",
                writes=[plan.layout.probed(f"{factor}{version}")],
                server=server,
                environment=environment,
                uses=uses,
            )  # fmt: skip


def _register(part: Part, torch: str) -> Iterator[Step]:
    if not part.spec.torch or not part.loads_in(torch):
        return
    if part.alone(torch):
        yield _compile_alone(part, torch)
    yield from (_register_schema(part, torch), _register_kernel(part, torch))
    if not part.spec.torch.overrides:
        yield from (_register_nodes(part, torch), _register_search(part, torch))
    if part.torch_op:  # of an operator that Python defines, the file itself says whether there is a formula
        yield _register_gradient(part, torch)


def _sdk(plan: Plan) -> Step:
    return make_step(
        plan,
        "sdk",
        writes=[plan.layout.sdk],
        setting=plan.environ.get("OPMATRIX_ORT_INCLUDE", ""),
        lost=lost_headers(plan.layout),
    )


def _glue(part: Part) -> Step:
    folder = part.layout.generated(part.name)
    return part.step(
        "glue",
        writes=[folder / name for name in names.generated(part.spec, part.written)],
        code=names.TEMPLATES,
        spec=part.documented,
        kernel=part.spec.kernel,
        written=sorted(part.written),
    )


def _compile(part: Part) -> Step:
    layout, name, spec = part.layout, part.name, part.spec
    linked = not spec.uses and OWN_ORT not in part.written
    shared = layout.objects(name, *native_build.shared(spec, part.written)) if linked else ()
    return part.step(
        "compile",
        reads=[
            layout.sdk,
            *(layout.generated(name) / file for file in names.native(spec, part.written)),
            *(path for other in spec.uses for path in layout.objects(other, "kernel", "ort")),
            *layout.native_sources(name),
            *headers.files(spec, layout.root),
        ],
        writes=[
            *([layout.torch_library(name)] if has_torch_library(spec) else ()),
            *dict.fromkeys(
                [
                    *([layout.ort_library(name), *shared] if has_ort_library(spec) else ()),
                    *(layout.objects(name, "kernel", "runtime") if has_kernel_object(spec, part.written) else ()),
                ]
            ),
        ],
        found=layout.other_headers(name),
        ninja=build_ninja(layout, spec, toolchain=part.plan.toolchain, written=part.written),
        compiler=part.plan.toolchain.identity,
        headers=headers.versions(spec),
        torch=part.plan.versions.torch if part.own_torch else "",
    )


def _compile_alone(part: Part, torch: str) -> Step:
    """Compile the library for one torch, in whose environment its headers are."""
    layout, name, spec = part.layout, part.name, part.spec
    place = f"torch{torch}"
    return part.step(
        "compile",
        f"@{place}",
        "--torch-root", str(layout.environment(place).relative_to(layout.root)),
        reads=[
            layout.sdk,
            *(layout.generated(name) / file for file in names.native(spec, part.written)),
            *(layout.objects(name, "kernel", "runtime") if has_kernel_object(spec, part.written) else ()),
            *layout.native_sources(name),
            *headers.files(spec, layout.root),
            layout.installed(place, "torch"),
        ],
        writes=[layout.torch_library(name, torch=torch)],
        after=[f"compile:{name}"],
        found=layout.other_headers(name, torch=torch),
        ninja=classic_ninja(layout, spec, toolchain=part.plan.toolchain, written=part.written),
        compiler=part.plan.toolchain.identity,
        headers=headers.versions(spec),
    )  # fmt: skip


def _data(part: Part) -> Step:
    return part.step(
        "data",
        reads=[part.layout.reference(part.name)],
        writes=[part.layout.data_manifest(part.name), *part.data_files],
        server="onnx",
        spec=part.interface,
        models=part.models,
        uses=(
            "numpy",
            "onnx",
        ),
    )


def _draw(part: Part) -> Step:
    return part.step(
        "draw",
        reads=[part.layout.reference(part.name)],
        writes=[part.layout.drawn(part.name)],
        server="onnx",
        spec=part.interface,
        models=part.models,
        uses=(
            "hypothesis",
            "numpy",
        ),
    )


def _register_schema(part: Part, torch: str) -> Step:
    """Keyed by the binding and the fake kernel; the arithmetic may change without it."""
    return part.register(
        "schema",
        torch=torch,
        reads=part.torch_interface(torch),
        after=part.compiled(torch),
        server="export",
        models=part.models,
        uses=("onnx",),
    )


def _register_nodes(part: Part, torch: str) -> Step:
    return part.register(
        "nodes",
        torch=torch,
        reads=part.torch_interface(torch),
        after=part.compiled(torch),
        server="export",
        models=part.models,
        lowering=part.lowered["custom"],
        uses=(
            "onnx",
            "onnxscript",
        ),
    )


def _register_kernel(part: Part, torch: str) -> Step:
    return part.register(
        "kernel",
        torch=torch,
        reads=[*part.torch_code(torch), part.layout.data_manifest(part.name)],
        models=part.models,
        tolerances=part.tolerances.get("custom"),
        uses=("numpy",),
    )


def _register_search(part: Part, torch: str) -> Step:
    return part.register(
        "search",
        torch=torch,
        reads=[*part.torch_code(torch), part.layout.drawn(part.name), part.layout.reference(part.name)],
        tolerances=part.tolerances.get("custom"),
        uses=(
            "hypothesis",
            "numpy",
        ),
    )


def _register_gradient(part: Part, torch: str) -> Step:
    """Keyed by the formula and the reference that it is the derivative of: no kernel can change whether it is."""
    return part.register(
        "gradient",
        torch=torch,
        reads=[*part.torch_op, part.layout.reference(part.name)],
        models=part.models,
        uses=("numpy",),
    )


def _export(part: Part, lowering: Lowering, cell: Cell) -> Step:
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
        environment=part.plan.environment(torch=cell.torch),
        uses=_EXPORTING,
    )  # fmt: skip


def _node(part: Part, lowering: Lowering, cell: Cell) -> Step:
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
        uses=("onnx",),
    )  # fmt: skip


def _agree(part: Part, lowering: Lowering, cells: Sequence[Cell]) -> Step:
    return part.step(
        "export",
        f"-{lowering}-agreement@torch{'+'.join(dict.fromkeys(c.torch for c in cells if c.torch))}",
        "--lowering", lowering, *map(str, cells),
        stage="agree",
        command="agree",
        reads=[part.layout.manifest(part.name, lowering, cell) for cell in cells],
    )  # fmt: skip


def _verify(part: Part, lowering: Lowering, cell: Cell, *, first: bool) -> Step:
    layout, spec = part.layout, part.spec
    verdict = layout.verdict(spec.name, lowering, cell)
    return part.step(
        "verify",
        f"-{lowering}@{cell}",
        "--lowering", lowering, "--cell", str(cell), *([] if first else ["--not-first"]),
        reads=[
            *([layout.ort_library(spec.name)] if lowering == "custom" and has_ort_library(spec) else ()),
            *(layout.reference(name) for name in (spec.name, *spec.uses)),
            layout.manifest(spec.name, lowering, cell),
            *part.function_models(lowering, cell),
            layout.data_manifest(spec.name),
            *(part.published_files if lowering == "custom" and first else ()),
        ],
        writes=[verdict],
        server="ort",
        verdict=verdict,
        spec=part.interface,
        used=part.used,
        models=part.models,
        tolerances=part.tolerances[lowering],
        first=first,
        published=part.operator.published if lowering == "custom" else (),
        environment=part.plan.environment(ort=cell.ort),
        uses=_VERIFYING,
    )  # fmt: skip


def _sanitize(part: Part, cell: Cell) -> Step:
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
        operators={o.name: o.where for o in plan.operators},  # a cell that is no longer theirs goes away
        drawn=[digest("export"), digest("node"), digest("register")],
        found=plan.layout.covered,
        writes=plan.layout.reports,
        code=TEMPLATES,
    )  # fmt: skip
