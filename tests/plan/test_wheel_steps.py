"""What the step `dist` depends on: all that verifies the operators of the wheel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opmatrix.basics.version import minor
from opmatrix.declaration.checks import register_parts
from opmatrix.declaration.load import load_operators
from opmatrix.plan.steps import Plan, steps
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from opmatrix.wheel import settings
from tests.plan.test_step_keys import default_plan


def planned(paths: Paths, choice: Choice | None = None) -> tuple[Plan, dict[str, Step]]:
    plan = default_plan(paths, choice)
    plan = replace(plan, dist=settings.read(paths, plan.operators))
    return plan, {step.task: step for step in steps(plan)}


def test_dist_comes_after_all_that_verifies_its_operators(root: Path) -> None:
    plan, found = planned(Paths(root))
    assert plan.dist and set(plan.dist.operators) < {o.name for o in plan.operators}
    dist = found["dist"]
    writers = {path: step.task for step in found.values() for path in step.writes}
    before = {*dist.after, *(writers[path] for path in dist.reads if path in writers)}
    for task, step in found.items():
        verifies = step.group in ("cases", "register", "verify") or "agreement" in step.name
        if verifies and step.operator in plan.dist.operators:
            assert task in before, f"dist does not wait for {task}"
        assert not (verifies and step.operator not in plan.dist.operators and task in before), task


def test_the_stage_looks_for_the_same_records(root: Path) -> None:
    """Run by hand, it has no plan."""
    paths = Paths(root)
    plan, found = planned(paths)
    torch = minor(plan.versions.torch)
    for operator in load_operators(paths):
        parts = register_parts(paths, operator, torch)
        written = {path for step in found.values() if step.group == "register" and step.operator == operator.name
                   for path in step.writes}  # fmt: skip
        assert {str(paths.register_manifest(operator.name, part, torch=torch)) for part in parts} == written


def test_unverified_waits_for_nothing(root: Path) -> None:
    _, found = planned(Paths(root))
    unverified, dist = found["dist:unverified"], found["dist"]
    assert not unverified.after and not [path for path in unverified.reads if "verify" in path or "register" in path]
    assert not {*unverified.writes} & {*dist.writes}, "else one satisfies the other"


def test_a_choice_of_cells_plans_no_wheel(root: Path) -> None:
    _, found = planned(Paths(root), Choice(opsets="18"))
    assert not [task for task in found if task.startswith(("dist", "link-wheel"))]
