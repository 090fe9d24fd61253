"""The keys of this project's steps. What the step `dist` depends on: all that verifies the operators of the wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.version import minor
from opmatrix.declaration.checks import checks, register_parts
from opmatrix.declaration.load import Operator, clashes, load_operator, load_operators
from opmatrix.declaration.models import samples
from opmatrix.engine.server_main import _OF_STAGES, _PRELOADS
from opmatrix.engine.tasks import DEFAULT
from opmatrix.plan import keys as step_keys
from opmatrix.plan.keys import OperatorPlan
from opmatrix.plan.steps import Plan, steps
from opmatrix.project.cells import Choice, why_unsupported
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed, with_environment
from opmatrix.records.code_hash import STAGE_MODULES, digest, modules
from opmatrix.records.step import Config, Fingerprint, Step, cell_step_name
from opmatrix.spec import Random
from opmatrix.toolchain.find import find_toolchain
from opmatrix.wheel import settings

ROOT = Path(__file__).parents[2]


def plan_of(paths: Paths, operators: Sequence[Operator], choice: Choice | None = None) -> Plan:
    """Return the plan of some operators in the cells of `choice`; None: in the default cells."""
    versions, choice = installed(), choice or Choice()
    return Plan(
        paths=paths,
        operators=operators,
        cells=chosen_cells(paths, choice, versions=versions),
        versions=versions,
        toolchain=find_toolchain(os.environ),
        environ=os.environ,
        choice=choice,
    )


def default_plan(paths: Paths, choice: Choice | None = None) -> Plan:
    """Return the plan of all operators."""
    return plan_of(paths, load_operators(paths), choice)


def configs(plan: Plan, **changed: Any) -> dict[str, Config]:
    """Return the keys of the steps of a changed plan."""
    return {step.task: step.config for step in steps(replace(plan, **changed))}


def test_only_steps_that_use_a_kernel_have_it_in_their_key(root: Path) -> None:
    """opcheck, gradients and exports do not read a compiled kernel; steps that compute with the kernel do."""
    paths = Paths(root)
    found: dict[str, set[bool]] = {}
    for step in steps(default_plan(paths)):
        operator = step.operator
        if paths.kernel(operator).is_file():
            made = {paths.kernel(operator), paths.torch_library(operator), paths.ort_library(operator)}
            part = step.name.partition("@")[0].removeprefix(f"{operator}-")
            kind = f"{step.group} {part}" if step.group in ("register", "verify") else step.group
            found.setdefault(kind, set()).add(not made.isdisjoint(map(Path, step.reads)))
    free = ["codegen", "data", "cases", "draw-inputs", "export", "verify decomposed"]
    free += [f"register {part}" for part in ("schema", "nodes", "gradient")]
    keyed = ["compile", "register kernel", "register search", "verify custom"]
    assert {kind for kind in free if found[kind] != {False}} == set()
    assert {kind for kind in keyed if found[kind] != {True}} == set()


def test_each_server_has_imported_the_stages_of_a_build(root: Path) -> None:
    """Before it forks their steps: each step would import its stage, which takes up to 0.1 CPU s of hypothesis."""
    found = {step.command[0]: step.server for step in steps(default_plan(Paths(root))) if step.group in DEFAULT}
    assert found.keys() > {"cases", "codegen", "compile", "data", "draw-inputs", "export", "register", "verify"}
    late = {name for name, server in found.items() if STAGE_MODULES[name] not in _PRELOADS.get(server or "", ())}
    # One step each in a run, and one whose import takes nothing.
    once = {"report", "compare-exports"}
    assert {name for name in late if STAGE_MODULES[name] not in _OF_STAGES.get(name, ())} == once


def test_every_part_of_register_reads_the_library_that_it_loads(root: Path) -> None:
    """Or, where an edit of the kernel is not to repeat it, every object of the library but the kernel's."""
    paths = Paths(root)
    planned = [*steps(default_plan(paths))]
    written = {path for step in planned for path in step.writes}
    loads = ("schema", "nodes", "kernel", "search")
    registering = [s for s in planned if s.group == "register" and any(f"-{part}@" in s.name for part in loads)]
    libraries = {s.operator: paths.torch_library(s.operator) for s in registering}
    compiled = [s for s in registering if str(libraries[s.operator]) in written]
    assert {part for part in loads for s in compiled if f"-{part}@" in s.name} == {*loads}
    for step in compiled:
        objects = {str(path) for path in paths.objects(step.operator, "torch", "runtime")}
        assert str(libraries[step.operator]) in step.reads or objects <= {*step.reads}, step.task
        assert objects <= written


def planned(torch: str, ort: str) -> dict[str, Step]:
    """Return the steps of group_norm for these versions at opset 18, and those that they depend on, by name."""
    plan = plan_of(Paths(ROOT), [load_operator(Paths(ROOT), "group_norm")], Choice(torch=torch, ort=ort, opsets="18"))
    return {step.task: step for step in steps(plan)}


def test_steps_of_other_versions_run_in_their_environments() -> None:
    found = planned("2.9", "1.18")
    servers = {step.server_name for step in found.values() if step.environment}
    assert servers == {"torch@torch2.9", "export@torch2.9", "ort@ort1.18"}
    export = found["export:group_norm-custom@torch2.9-dynamo-opset18"]
    versions = [Path(path).relative_to(ROOT) for path in export.reads if ".venv-matrix" in path]
    assert versions == [Path(f".venv-matrix/torch2.9/versions/{p}") for p in ("torch", "onnx", "onnxscript")]
    assert "onnxscript" not in export.config, "the versions of the main environment do not count"
    made = {path for name in ("torch2.9", "ort1.18") for path in found[f"environment:{name}"].writes}
    assert {path for step in found.values() for path in step.reads if ".venv-matrix" in path} <= made
    assert "environment:ort1.18" not in planned("default", "default")


def test_each_step_has_the_code_of_an_existing_stage_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage without a module has no code, so that no edit of it would repeat the step."""
    asked: set[str] = set()

    def record(stage: str, *further: Path) -> Fingerprint:
        asked.add(stage)
        return digest(stage, *further)

    monkeypatch.setattr(step_keys, "digest", record)
    assert [*steps(default_plan(Paths(ROOT)))]
    assert "export-node" in asked
    assert {stage for stage in asked if not modules(stage)} == set()


def test_a_step_has_fields_for_operator_lowering_and_cell() -> None:
    """Programs need not parse its name."""
    found = [*planned("default", "default").values()]
    of_cells = [step for step in found if step.group in ("export", "verify") and "agreement" not in step.name]
    assert len(of_cells) > 4
    for step in of_cells:
        assert step.lowering and step.cell
        assert step.name == cell_step_name(step.group, "group_norm", step.lowering, step.cell)
    without = {"environment", "report", "probe", "link-wheel", "dist"}
    assert {step.group for step in found if step.operator != "group_norm"} <= without
    assert all((step.lowering and step.cell) or step.check for step in found if step.verdict), (
        "a step that dies leaves a verdict"
    )


def test_the_report_expects_the_checks_that_are_planned() -> None:
    """Otherwise a check without a result would be missing from the report, or one that is not planned would fail it.

    `doit compat` makes records that the report has while they are up to date, and does not expect.
    """
    for choice in (Choice(), Choice(torch="2.0,2.13", opsets="18")):
        plan = default_plan(Paths(ROOT), choice)
        planned = [step for step in steps(plan) if step.check and step.verdict in step.writes]
        keys = [step.check for step in planned if step.group != "compat"]
        assert sorted(map(str, keys)) == sorted(map(str, checks(plan.paths, plan.operators, plan.cells)))
        assert len(keys) > 20


def test_each_failure_of_a_default_step_is_in_a_record() -> None:
    """A step blocks one that has a record, or has one itself; the report waits for both."""
    plan = default_plan(Paths(ROOT))
    for chosen in (plan, replace(plan, cells=()), replace(plan, operators=())):
        made = {step.task: step for step in steps(chosen) if step.group in DEFAULT}
        writers = {path: step.task for step in made.values() for path in step.writes}
        before: dict[str, set[str]] = {
            task: {*step.after, *(writers[p] for p in step.reads if p in writers)} for task, step in made.items()
        }
        recorded = {task for task, step in made.items() if step.verdict}
        assert recorded == before["report"]
        shown, waiting = set(), [*recorded]
        while waiting:
            shown.add(task := waiting.pop())
            waiting += before[task] - shown
        assert made.keys() - shown == {"report"}
        assert len({step.verdict for step in made.values() if step.verdict}) == len(recorded)


def test_a_step_does_not_depend_on_the_other_planned_cells() -> None:
    """Otherwise each choice of cells would make the other's results stale."""
    alone = planned("default", "default")
    together = planned("2.9,2.13,2.15", "all")
    joint = ("report", "agreement")  # the steps that compare several cells
    changed = [name for name, step in alone.items() if step != together.get(name) and not any(t in name for t in joint)]
    assert changed == []


def test_every_torch_and_every_onnx_runtime_has_a_cell_with_the_once_checks() -> None:
    found = planned("all", "1.16,1.31")
    verify = {name.partition("@")[2]: s for name, s in found.items() if name.startswith("verify:group_norm-custom@")}
    first = {cell for cell, step in verify.items() if "--skip-once-checks" not in step.command}
    torches = [t for t in with_environment(Paths(ROOT))[0] if not why_unsupported("legacy", 18, t)]
    assert len(torches) > 2
    assert first == {f"torch{t}-legacy-opset18-ort{o}" for t in torches for o in ("1.16", "1.31")}


def test_a_torch_without_the_stable_abi_has_a_step_that_compiles_its_library() -> None:
    old, new = planned("2.6", "default"), planned("2.15", "default")
    compiled = old["compile:group_norm@torch2.6"]
    paths = Paths(ROOT)
    library = str(paths.torch_library("group_norm", torch="2.6"))
    binding = str(paths.objects("group_norm", "torch", torch="2.6")[0])
    version = str(paths.torch_version("group_norm", torch="2.6"))
    assert compiled.writes == (library, version, binding)
    assert str(paths.installed_version("torch2.6", "torch")) in compiled.reads
    assert {library, version} <= {*old["register:group_norm-kernel@torch2.6"].reads}
    assert binding in old["register:group_norm-schema@torch2.6"].reads
    assert "compile:group_norm@torch2.15" not in new, "one library serves 2.9 and newer"
    assert str(paths.torch_library("group_norm")) in new["register:group_norm-kernel@torch2.15"].reads


def test_lists_and_strings_need_a_separate_library_up_to_a_newer_torch() -> None:
    plan = replace(plan_of(Paths(ROOT), ()), cells=())
    nms, group_norm = (OperatorPlan(plan, load_operator(plan.paths, name)) for name in ("nms", "group_norm"))
    assert [group_norm.needs_own_library(t) for t in ("2.6", "2.9", "2.15")] == ["2.6", None, None]
    assert [nms.needs_own_library(t) for t in ("2.6", "2.9", "2.13", "2.15")] == ["2.6", "2.9", None, None]


def test_planning_takes_as_many_calls_for_an_operator_however_many_there_are(tmp_path: Path) -> None:
    """So that planning 1,000 operators takes 100 times as long as planning 10, and not 10,000 times."""
    operator = load_operator(Paths(ROOT), "gelu")
    plan = replace(default_plan(Paths(ROOT)), paths=Paths(tmp_path), cells=(), dist=None)

    def calls(count: int) -> int:
        """Return how often planning calls a function of Python or C."""
        named = [replace(operator, spec=replace(operator.spec, name=f"op_{n}")) for n in range(count)]
        made = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        chosen = replace(plan, operators=named)
        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            list(steps(chosen))
            list(clashes(named))
        finally:
            sys.setprofile(before)
        return made

    calls(1)  # which imports and caches
    few, many = calls(20), calls(200)
    assert many < 10.5 * few


def test_a_further_case_runs_no_step_that_starts_the_exporters(root: Path) -> None:
    """But where sizes are computed: there "schema" compares the shapes of every case."""
    plan = default_plan(Paths(root))

    def keys(operators: Sequence[Operator]) -> dict[str, Config]:
        planned = steps(replace(plan, operators=operators))
        return {step.task: step.config for step in planned if step.server == "export" and step.operator}

    def more(operator: Operator) -> Operator:
        first, *others = operator.models
        further = replace(first.cases[-1], name="more")
        return replace(operator, models=(replace(first, cases=(*first.cases, further)), *others))

    before, after = keys(plan.operators), keys([more(operator) for operator in plan.operators])
    assert {task for task in before if before[task] != after[task]} == {"register:nms-schema@torch2.13"}


def test_other_values_of_a_case_that_opcheck_runs_run_it_again(root: Path) -> None:
    plan = default_plan(Paths(root))
    operator = load_operator(plan.paths, "group_norm")
    first, *others = operator.models
    _, sample, _ = next(samples(operator))
    tensor = sample.inputs["x"]
    assert isinstance(tensor, Random)
    other = replace(sample, inputs={**sample.inputs, "x": replace(tensor, mean=5.0)})
    edited = replace(operator, models=(replace(first, cases=(other, *first.cases[1:])), *others))
    before, after = (configs(plan, operators=(one,)) for one in (operator, edited))
    changed = {task.partition("@")[0].partition("-")[2] for task in before if before[task] != after[task]}
    assert {"schema", "nodes", "kernel", "gradient"} <= changed


def test_steps_that_evaluate_a_reference_in_torch_are_keyed_by_that_torch(root: Path) -> None:
    plan = default_plan(Paths(root))
    operator = load_operator(plan.paths, "group_norm")
    in_torch = replace(operator, spec=replace(operator.spec, reference="torch"))

    def changed(operator: Operator) -> set[str]:
        """Return the groups of the steps that another torch repeats, but those of register."""
        newer = replace(plan.versions, torch="2.13.99")
        before, after = (configs(plan, operators=(operator,), versions=v) for v in (plan.versions, newer))
        return {task.partition(":")[0] for task in before if before[task] != after[task]}

    evaluated = {"data", "cases", "draw-inputs", "verify"}
    assert evaluated.isdisjoint(changed(operator))
    assert evaluated <= changed(in_torch)


@pytest.fixture(scope="module")
def wheel(root: Path) -> tuple[Plan, dict[str, Step]]:
    return wheel_planned(Paths(root))


def wheel_planned(paths: Paths, choice: Choice | None = None) -> tuple[Plan, dict[str, Step]]:
    plan = default_plan(paths, choice)
    plan = replace(plan, dist=settings.read(paths, plan.operators))
    return plan, {step.task: step for step in steps(plan)}


def test_dist_comes_after_all_that_verifies_its_operators_and_unverified_after_nothing(
    wheel: tuple[Plan, dict[str, Step]],
) -> None:
    plan, found = wheel
    assert plan.dist and set(plan.dist.operators) < {o.name for o in plan.operators}
    dist, unverified = found["dist"], found["dist:unverified"]
    writers = {path: step.task for step in found.values() for path in step.writes}
    before = {*dist.after, *(writers[path] for path in dist.reads if path in writers)}
    for task, step in found.items():
        verifies = step.group in ("cases", "register", "verify") or "agreement" in step.name
        if verifies and step.operator in plan.dist.operators:
            assert task in before, f"dist does not wait for {task}"
        assert not (verifies and step.operator not in plan.dist.operators and task in before), task
    assert not unverified.after and not [path for path in unverified.reads if "verify" in path or "register" in path]
    assert not {*unverified.writes} & {*dist.writes}, "else one satisfies the other"


def test_the_stage_looks_for_the_same_records(wheel: tuple[Plan, dict[str, Step]]) -> None:
    """Run by hand, it has no plan."""
    plan, found = wheel
    paths, torch = plan.paths, minor(plan.versions.torch)
    for operator in plan.operators:
        parts = register_parts(paths, operator, torch)
        written = {path for step in found.values() if step.group == "register" and step.operator == operator.name
                   for path in step.writes}  # fmt: skip
        assert {str(paths.register_manifest(operator.name, part, torch=torch)) for part in parts} == written


def test_a_choice_of_cells_plans_no_wheel(root: Path) -> None:
    _, found = wheel_planned(Paths(root), Choice(opsets="18"))
    assert not [task for task in found if task.startswith(("dist", "link-wheel"))]
