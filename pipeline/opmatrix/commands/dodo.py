"""The task creator that the dodo.py of a project calls, and the doit loader `opmatrix`, which checks the tasks."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from doit import doit_cmd, get_var
from doit.cmd_base import NamespaceTaskLoader
from doit.exceptions import InvalidCommand
from doit.globals import Globals
from doit.loader import get_module
from doit.task import Task

from opmatrix.basics.errors import OpmatrixError, SpecError, UsageError, did_you_mean
from opmatrix.commands.base import CommandBase, show_error
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.engine.tasks import DEFAULT, DIST, LINK, StepTask, doit_tasks
from opmatrix.engine.up_to_date import State
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import check_format
from opmatrix.records.step import Config, read_name

# Variables of the command line: `doit NAME=VALUE`.
VARIABLES = ("torch", "ort", "opsets")
# Commands that take names of tasks. doit 0.37 names no near one, and raises KeyError in `info`.
OF_TASKS = ("clean", "forget", "ignore", "info", "list")


class Loader(NamespaceTaskLoader):
    """Load dodo.py of the current folder, which also has the state, the lock and the settings."""

    cmd_options = ()

    def setup(self, opt_values: dict[str, Any]) -> None:
        gc.disable()  # a collection finds nothing in the task graph, and costs every command 10 ms
        atexit.register(gc.freeze)  # nor does the one as Python ends, which ignores `disable`: 20 ms
        try:
            # doit accepts any name: `doit opsett=all` would run the default cells without a warning.
            for name in doit_cmd._CMDLINE_VARS or {}:
                if name not in VARIABLES:
                    allowed = ", ".join(VARIABLES)
                    raise UsageError(f"unknown variable {name!r}{did_you_mean(name, VARIABLES)}; allowed: {allowed}")
            if Path("dodo.py").is_file():  # doit names a missing one itself
                check_format(Path.cwd())
            self.namespace = dict(inspect.getmembers(get_module("dodo.py")))
        except OpmatrixError as error:
            _exit(error)

    def load_doit_config(self) -> dict[str, Any]:
        return {"default_tasks": list(DEFAULT), **super().load_doit_config()}

    def load_tasks(self, cmd: CommandBase, pos_args: list[str]) -> list[Task]:
        """Return the tasks, and replace doit's open Dependency by opmatrix's State."""
        try:
            pos_args[:] = _with_dist_options(pos_args)
            tasks = super().load_tasks(cmd, pos_args)
            _require_steps_of_opmatrix(pos_args, tasks)
        except OpmatrixError as error:
            _exit(error)
        pos_args[:] = cmd.selected(pos_args, tasks)  # in place: doit passes this list to the command
        if cmd.name in OF_TASKS:
            names = {task.name for task in tasks}
            if unknown := next((name for name in pos_args if name not in names and "*" not in name), None):
                raise InvalidCommand(f"no step {unknown!r}{did_you_mean(unknown, names)}; see `doit list --all`")
        journal = cmd.dep_manager.backend
        # Of a plan that this command made; a plan from the cache has no Config.
        configs = [task.step.config for task in tasks if isinstance(task, StepTask)]
        if fingerprints := [f for config in configs if isinstance(config, Config) for f in config.fingerprints]:
            journal.explain(fingerprints)
        cmd.dep_manager = Globals.dep_manager = State(journal, root=Path.cwd(), tasks=tasks)
        return list(tasks)


def tasks_of(dodo: str) -> Callable[[], Iterator[Task]]:
    """Return the task creator of the project whose dodo.py is `dodo`: the steps of every operator in the cells that
    variables choose, as in `doit torch=2.9 ort=1.18 opsets=18`."""
    paths = Paths(Path(dodo).resolve().parent)
    resume_in(paths.root, sys.argv[1:])

    def task_pipeline() -> Iterator[Task]:
        choice = Choice(**{name: get_var(name, "default") for name in VARIABLES})
        return doit_tasks(load_or_plan(paths, choice=choice, environ=os.environ))

    return task_pipeline


def resume_in(root: Path, arguments: Sequence[str]) -> None:
    """Start doit again in `root` if it was started in another folder. There doit reads no pyproject.toml of the
    project: with ``-k`` it would run the steps without its settings and write a second state."""
    from doit.loader import initial_workdir

    if initial_workdir and Path(initial_workdir).resolve() != root.resolve():
        os.chdir(root)
        os.environ.pop("DOIT_SEEK_FILE", None)
        kept = [a for a in arguments if a not in ("-k", "--seek-file")]
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "doit", *kept])


def _with_dist_options(words: Sequence[str]) -> list[str]:
    """Replace ``dist --format hf-kernel --unverified`` by the step ``dist:hf-kernel-unverified``. With options of
    doit's, the task `dist` would depend on the same other tasks. Raises UsageError for an unknown format."""
    if DIST not in words:
        return [*words]
    from opmatrix.plan.wheel_steps import HF_KERNEL, UNVERIFIED  # no other command needs it: a plan may be cached

    formats = ("wheel", HF_KERNEL)
    arguments: list[str] = []
    waiting = [part for word in words for part in ([*word.split("=", 1)] if word.startswith("--format=") else [word])]
    while waiting:
        arguments.append(waiting.pop(0))
        if arguments[-1] != DIST:
            continue
        kinds = {"--format": "wheel", f"--{UNVERIFIED}": ""}
        while waiting and waiting[0] in kinds:
            option = waiting.pop(0)
            kinds[option] = UNVERIFIED if option != "--format" else waiting.pop(0) if waiting else ""
        if kinds["--format"] not in formats:
            raise UsageError(f"dist --format: found {kinds['--format']!r}, allowed: {', '.join(formats)}")
        name = "-".join(kind for kind in kinds.values() if kind not in ("", "wheel"))
        arguments[-1] = f"{DIST}:{name}" if name else DIST
    return arguments


def _require_steps_of_opmatrix(words: Sequence[str], tasks: Sequence[Task]) -> None:
    """Raise SpecError for a task that is none of opmatrix's, and UsageError if steps of a wheel are selected, and the
    choice of cells has none."""
    # Groups have no actions. Any other task would count as done without having run.
    if others := [task.name for task in tasks if task.actions and not isinstance(task, StepTask)]:
        raise SpecError(f"dodo.py: found task {others[0]!r}, allowed: what opmatrix plans, which alone is run and "
                        "recorded here. Keep tasks of your own in the dodo.py of another folder")  # fmt: skip
    asked = any(read_name(word).group in (DIST, LINK) for word in words)
    if asked and not any(isinstance(task, StepTask) and task.step.group == DIST for task in tasks):
        raise UsageError("a wheel ships what is verified in the default cells: run `doit dist` without torch=, ort=, "
                         "opsets=")  # fmt: skip


def _exit(error: OpmatrixError) -> NoReturn:
    # doit shows a traceback for every exception that is not one of its own.
    show_error(error)
    raise SystemExit(error.exit_code) from error
