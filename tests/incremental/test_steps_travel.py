"""A step gives the same bytes in another folder that holds only what it reads, for another HOME. So its result can be
used wherever the key is the same: on another machine, in CI, in another clone."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from opmatrix.engine.lock import hold
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.engine.server_pool import Pool
from opmatrix.engine.tasks import DEFAULT
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.support.projects import Project

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# Operators with and without a kernel, a torch side, a gradient, a decomposition and operators that they use.
OPERATORS = ("add_and_round", "custom_op_one", "custom_op_two", "group_norm", "inverse")
# Operators with handwritten bindings, for torch and for ONNX Runtime.
HANDWRITTEN = ("damped", "row_sums")
STAY = ("report",)  # it shows the runs of one machine


@dataclass(frozen=True)
class Traveller:
    """Runs steps of a built project in another folder, which is empty before each."""

    project: Project
    steps: dict[str, Step]
    pool: Pool
    folder: Path

    def problems(self, step: Step) -> Iterator[str]:
        """Run a step where there is nothing but what it names, and yield what differs from the project's own run."""
        self._empty()
        named = [*step.reads, *step.declared]
        for task in step.after:
            named += [*self.steps[task].writes, *self.steps[task].links]
        for path in (*map(str, (self.project.root / "pyproject.toml", self.project.root / "dodo.py")), *named):
            self._bring(Path(path))
        self._name_handwritten()
        log = self.folder / "build/log/step.log"
        ending = self.pool.run(step.command, server=step.server_name, log=log, seconds=500)
        if not ending.done:
            yield f"{step.task} failed: {log.read_text()[-500:]}"
            return
        for path in map(Path, (*step.writes, *step.links)):
            if self._content(path) != self._content(self._there(path)):
                yield f"{step.task}: {path.name} differs"
        if step.discovered_inputs and str(self.folder) in self._there(Path(step.discovered_inputs)).read_text():
            yield f"{step.task}: a path of this machine in its list of inputs"
        if str(self.project.root) in step.config + json.dumps(step.command):
            yield f"{step.task}: a path of this machine in its key"

    def _there(self, path: Path) -> Path:
        return self.folder / path.relative_to(self.project.root)

    def _bring(self, path: Path) -> None:
        exists = os.path.lexists(path)  # a declared file may be missing, such as an operator's lowering.py
        if exists and path.is_relative_to(self.project.root) and not os.path.lexists(there := self._there(path)):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there, follow_symlinks=False)

    def _name_handwritten(self) -> None:
        """Make empty files with the names of handwritten ones, which the plan depends on, as on the declaration."""
        for path in self.project.paths.native.glob("*/*"):
            if path.name in ("kernel.h", "torch.cc", "ort.cc") and not self._there(path).exists():
                self._there(path).parent.mkdir(parents=True, exist_ok=True)
                self._there(path).touch()

    def _empty(self) -> None:
        for path in self.folder.iterdir():  # not the folder: servers run in it
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    @staticmethod
    def _content(path: Path) -> Path | bytes:
        return path.readlink() if path.is_symlink() else path.read_bytes()


@pytest.fixture(scope="module")
def traveller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traveller]:
    project = Project.copy(tmp_path_factory.mktemp("here").resolve(), operators=OPERATORS)
    project.bring(*HANDWRITTEN)
    settings = project.root / "pyproject.toml"
    text = re.sub(r"^(legacy|dynamo|node) = .*$", r"\1 = [18]", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(text)
    project.passes("-n", "2")
    planned = load_or_plan(project.paths, choice=Choice(), environ=os.environ)
    folder = tmp_path_factory.mktemp("other place") / "elsewhere"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, hold(folder.parent / "lock") as lock:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder.parent))
        patch.delenv("XDG_CACHE_HOME", raising=False)
        pool = Pool(Paths(folder), entry="opmatrix.commands.stages:main", lock=lock)
        pool.prepare()
        try:
            yield Traveller(project, {step.task: step for step in planned}, pool, folder)
        finally:
            pool.close()


def kind(step: Step) -> str:
    return f"{step.group} {step.check.check}" if step.check and step.check.check != step.group else step.group


def test_every_kind_of_step_gives_the_same_bytes_elsewhere(traveller: Traveller) -> None:
    steps = [step for step in traveller.steps.values() if step.group in DEFAULT and step.group not in STAY]
    assert [problem for step in steps for problem in traveller.problems(step)] == []
    assert {step.group for step in steps} == {*DEFAULT} - {*STAY}
    parts = {kind(step) for step in steps if step.group == "register"}
    assert parts == {f"register {part}" for part in ("schema", "kernel", "nodes", "search", "gradient")}
    assert {step.command[0] for step in steps if step.group == "export"} == {"export", "compare-exports"}
    exporters = {step.cell.exporter for step in steps if step.group == "verify" and step.cell}
    assert exporters == {"legacy", "dynamo", "node"}


@pytest.mark.parametrize("group", ["cases", "verify", "register"])
def test_a_step_that_reads_more_than_it_names_is_found(traveller: Traveller, group: str) -> None:
    step = next(step for step in traveller.steps.values() if step.group == group and step.after)
    assert [*traveller.problems(step)] == []
    (problem,) = traveller.problems(replace(step, after=()))
    assert re.search("missing|not a readable|wrong", problem)


def test_a_path_in_a_key_is_found(traveller: Traveller) -> None:
    step = traveller.steps["codegen:group_norm"]
    assert any("a path" in problem for problem in traveller.problems(replace(step, config=str(traveller.project.root))))
