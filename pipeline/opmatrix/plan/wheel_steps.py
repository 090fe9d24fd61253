"""The steps of `doit dist`: link one pair of libraries of the chosen operators, and pack a wheel. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from opmatrix.codegen import generated_files
from opmatrix.plan.keys import Plan, fingerprint, make_step
from opmatrix.project.cells import Choice
from opmatrix.project.settings import settings as project_settings
from opmatrix.records.code_hash import of_features
from opmatrix.records.step import Step
from opmatrix.signature.signature import has_kernel
from opmatrix.spec import as_data
from opmatrix.toolchain import headers, ninja_file
from opmatrix.wheel import settings
from opmatrix.wheel import sources as vendored_modules
from opmatrix.wheel.settings import Dist
from opmatrix.wheel.sources import commit

UNVERIFIED = "unverified"
HF_KERNEL = "hf-kernel"


def shipping(plan: Plan, planned: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps of the wheel; `planned` are all other steps.

    If the project declares no wheel, yield only `dist`, which fails and prints how to declare one. With a choice of
    cells, yield none: a wheel needs the default cells.
    """
    if plan.choice != Choice():
        return
    if not plan.dist:
        failed = [f"declaration:{name}" for name in settings.unusable(plan.paths, plan.failed)]
        yield make_step(plan, "dist", after=failed, settings=None)
        return
    yield _link_wheel(plan, plan.dist)
    sources = settings.sources(plan.paths, plan.dist.chosen(plan.operators))
    yield _dist(plan, plan.dist, sources, proofs=_proofs(plan.dist, planned))
    yield _dist(plan, plan.dist, sources, proofs=None)
    yield _hf_kernel(plan, plan.dist, unverified=False)
    yield _hf_kernel(plan, plan.dist, unverified=True)


def _proofs(dist: Dist, planned: Sequence[Step]) -> list[Step]:
    """Return the steps that verify the operators of a wheel: cases, register, agreement of exports, and verify."""
    of_wheel = [step for step in planned if step.operator in dist.operators]
    return [s for s in of_wheel if s.group in ("cases", "register", "verify") or s.is_joint]


def _link_wheel(plan: Plan, dist: Dist) -> Step:
    """Keyed by objects, not by sources: an edit that changes no object repeats nothing."""
    paths, chosen = plan.paths, dist.chosen(plan.operators)
    specs = [o.spec for o in chosen if has_kernel(o.spec)]
    libraries = {side: paths.linked_library(dist.name, side) for side in settings.sides(chosen)}
    return make_step(
        plan,
        "link-wheel",
        reads=[
            *(path for folder in (paths.include, paths.binding) for path in sorted(folder.rglob("*.*"))),
            *(path for spec in specs for path in paths.objects(spec.name, *ninja_file.shared_objects(spec))),
        ],
        writes=[*libraries.values(), paths.linked_record],
        code=generated_files.TEMPLATES,
        declared=[path for o in chosen for path in (paths.spec(o.name), paths.cases(o.name))],
        ninja=ninja_file.linked_ninja(paths, specs, libraries, toolchain=plan.toolchain),
        compiler=plan.toolchain.identity,
        ort_headers=plan.ort_headers,
    )


def _dist(plan: Plan, dist: Dist, sources: Sequence[Path], *, proofs: Sequence[Step] | None) -> Step:
    """Return the step that packs the operators that `proofs` verify, or, with None, unverified operators."""
    paths, chosen = plan.paths, dist.chosen(plan.operators)
    licenses = [*dist.licenses, *(file for files in dist.third_party.values() for file in files)]
    kind = [] if proofs is not None else [UNVERIFIED]
    evidence: list[Path | str] = []
    if proofs is not None:
        evidence = [paths.linked_record, *(path for step in proofs for path in step.writes)]
        for o in chosen:
            evidence += [paths.compiled_record(o.name), paths.data_manifest(o.name), paths.reference(o.name)]
    # The cases that run from the wheel, with their tolerances.
    cases = [[as_data(o.spec.tolerances), [as_data(model) for model in o.models]] for o in chosen]
    return make_step(
        plan,
        "dist",
        *(f"--{word}" for word in kind),
        name="".join(kind),
        reads=[
            *(paths.linked_library(dist.name, side) for side in settings.sides(chosen)),
            *(path for o in chosen for path in settings.of_operator(paths, o).values()),
            *sources,
            *(paths.root / file for file in licenses),
            *evidence,
        ],
        writes=[paths.unverified_record if kind else paths.dist_record],
        discovered_inputs=paths.unverified_list if kind else paths.wheel_list,
        code=[
            *settings.TEMPLATES,
            *settings.PROGRAMS,
            *vendored_modules.sources(),
            vendored_modules.LICENSE,
            vendored_modules.POLICY,
            *of_features("signed results"),
        ],
        declared=[path for o in chosen for path in (paths.spec(o.name), paths.cases(o.name))],
        settings=as_data(dist),
        **({"signers": named} if (named := project_settings(paths, "cache").get("signers")) else {}),
        headers=[version for o in chosen for version in headers.versions(o.spec)],
        compiler=plan.toolchain.identity,
        commit=commit(paths.root),
        cells=[] if kind else [str(cell) for cell in plan.cells],
        cases=None if kind else fingerprint(cases),
        uses=() if kind else ("torch", "onnx", "onnxscript", "onnxruntime", "numpy"),
    )


def _hf_kernel(plan: Plan, dist: Dist, *, unverified: bool) -> Step:
    """Return the step that makes a folder for `kernels` of the wheel, which its record describes completely."""
    paths = plan.paths
    return make_step(
        plan,
        "dist",
        *([f"--{UNVERIFIED}"] if unverified else []),
        name=f"{HF_KERNEL}-{UNVERIFIED}" if unverified else HF_KERNEL,
        command=HF_KERNEL,
        reads=[paths.unverified_record if unverified else paths.dist_record],
        writes=[paths.unverified_kernel_record if unverified else paths.kernel_record],
        discovered_inputs=paths.unverified_kernel_list if unverified else paths.kernel_list,
        code=[*settings.TEMPLATES, *settings.PROGRAMS],
        settings=as_data(dist),
    )
