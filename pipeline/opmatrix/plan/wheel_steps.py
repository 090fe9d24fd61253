"""The steps of `doit dist`: link one pair of libraries of the chosen operators, and pack a wheel. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator

from opmatrix.codegen import generated_files
from opmatrix.declaration.torch_signature import has_kernel
from opmatrix.plan.step_keys import Plan, make_step
from opmatrix.spec import as_data
from opmatrix.step import Step
from opmatrix.toolchain import ninja_file, third_party_headers
from opmatrix.wheel import inputs, manylinux, settings, vendored_modules
from opmatrix.wheel.git_commit import commit
from opmatrix.wheel.settings import Dist


def shipping(plan: Plan) -> Iterator[Step]:
    """Yield both steps. Where the project declares no wheel, only `dist`, whose message says what to write."""
    if plan.dist:
        yield _link_wheel(plan, plan.dist)
    yield _dist(plan, plan.dist)


def _link_wheel(plan: Plan, dist: Dist) -> Step:
    """Keyed by objects, not by sources: an edit that changes no object repeats nothing."""
    layout, chosen = plan.layout, dist.chosen(plan.operators)
    specs = [o.spec for o in chosen if has_kernel(o.spec)]
    libraries = {side: layout.linked_library(dist.name, side) for side in inputs.sides(chosen)}
    return make_step(
        plan,
        "link-wheel",
        reads=[
            layout.ort_headers,
            *(path for folder in (layout.include, layout.binding) for path in sorted(folder.rglob("*.*"))),
            *(path for spec in specs for path in layout.objects(spec.name, *ninja_file.shared_objects(spec))),
        ],
        writes=list(libraries.values()),
        code=generated_files.TEMPLATES,
        declared=[path for o in chosen for path in (layout.spec(o.name), layout.cases(o.name))],
        ninja=ninja_file.linked_ninja(layout, specs, libraries, toolchain=plan.toolchain),
        compiler=plan.toolchain.identity,
    )


def _dist(plan: Plan, dist: Dist | None) -> Step:
    layout, chosen = plan.layout, dist.chosen(plan.operators) if dist else ()
    licenses = [*dist.licenses, *(file for files in dist.third_party.values() for file in files)] if dist else []
    return make_step(
        plan,
        "dist",
        reads=[
            *(layout.linked_library(dist.name, side) for side in inputs.sides(chosen) if dist),
            *(path for o in chosen for path in inputs.of_operator(layout, o).values()),
            *(path for o in chosen for path in inputs.sources(layout, o)),
            *(layout.root / file for file in licenses),
        ],
        writes=[layout.dist_record] if dist else [],
        after=[f"declaration:{name}" for name in settings.unusable(layout, plan.failed)],
        discovered_inputs=layout.wheel_list,
        code=(*inputs.TEMPLATES, *vendored_modules.sources(), vendored_modules.LICENSE, manylinux.POLICY),
        declared=[path for o in chosen for path in (layout.spec(o.name), layout.cases(o.name))],
        settings=as_data(dist) if dist else None,
        headers=[version for o in chosen for version in third_party_headers.versions(o.spec)],
        compiler=plan.toolchain.identity,
        commit=commit(layout.root),
    )
