"""Load the tasks: one project, one state, known variables. A doit loader."""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from doit import doit_cmd
from doit.cmd_base import Command, NamespaceTaskLoader
from doit.globals import Globals
from doit.loader import get_module
from doit.task import Task

from opmatrix.commands.task_selection import with_operators
from opmatrix.engine.doit_tasks import DEFAULT, StepTask
from opmatrix.engine.up_to_date import State
from opmatrix.errors import OpmatrixError, SpecError, UsageError, did_you_mean
from opmatrix.project.format import check_format
from opmatrix.step import Config, Fingerprint

# What may be written as `doit NAME=VALUE`.
VARIABLES = ("torch", "ort", "opsets")
# Commands that are asked of one thing, where an operator's name does not stand for its steps.
OF_ONE = ("help", "info", "tabcompletion")


class Loader(NamespaceTaskLoader):
    """dodo.py of the current folder, and no other: the state, the lock and the settings lie beside it."""

    cmd_options = ()

    def setup(self, opt_values: dict[str, Any]) -> None:
        gc.disable()  # a graph is no garbage, and this process then waits; to look for some costs every command 10 ms
        try:
            _check_variables(list(doit_cmd._CMDLINE_VARS or {}))
            if Path("dodo.py").is_file():  # doit names a missing one itself
                check_format(Path.cwd())
            self.namespace = dict(inspect.getmembers(get_module("dodo.py")))
        except OpmatrixError as error:
            _exit(error)

    def load_doit_config(self) -> dict[str, Any]:
        return {"default_tasks": list(DEFAULT), **super().load_doit_config()}

    def load_tasks(self, cmd: Command, pos_args: list[str]) -> list[Task]:
        """Return the tasks, and put our State into the place of the doit Dependency that is open."""
        try:
            tasks = super().load_tasks(cmd, pos_args)
            _refuse_others(tasks)
        except OpmatrixError as error:
            _exit(error)
        if cmd.name not in OF_ONE:
            pos_args[:] = with_operators(pos_args, tasks)  # the list that doit then gives to the command
        journal = cmd.dep_manager.backend
        if fingerprints := _fingerprints(tasks):
            journal.explain(fingerprints)
        cmd.dep_manager = Globals.dep_manager = State(journal, root=Path.cwd(), tasks=tasks)
        return list(tasks)


def resume_in(root: Path, arguments: Sequence[str]) -> None:
    """Start doit again in `root`, if it was started in another folder.

    doit reads pyproject.toml in the folder where it is started alone, so with ``-k`` from a sub-folder it would run
    the steps without our settings and keep a second state. Returns where nothing is to be done.
    """
    from doit.loader import initial_workdir

    if initial_workdir and Path(initial_workdir).resolve() != root.resolve():
        os.chdir(root)
        os.environ.pop("DOIT_SEEK_FILE", None)
        kept = [a for a in arguments if a not in ("-k", "--seek-file")]
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "doit", *kept])


def _fingerprints(tasks: Sequence[Task]) -> list[Fingerprint]:
    """Return the fingerprints of a plan that was made by this command; a kept one has none."""
    configs = [task.step.config for task in tasks if isinstance(task, StepTask)]
    if not isinstance(next(iter(configs), None), Config):
        return []
    return [f for config in configs if isinstance(config, Config) for f in config.fingerprints]


def _refuse_others(tasks: Sequence[Task]) -> None:
    # Groups have no actions. Any other task would be taken for done without being run.
    if others := [task.name for task in tasks if task.actions and not isinstance(task, StepTask)]:
        raise SpecError(f"dodo.py: found task {others[0]!r}, allowed: what opmatrix plans, which alone is run and "
                        "recorded here. Keep tasks of your own in the dodo.py of another folder")  # fmt: skip


def _check_variables(given: Sequence[str]) -> None:
    # doit takes any name (and tells nobody which were given): `doit opsett=all` would run the default in silence.
    for name in given:
        if name not in VARIABLES:
            allowed = ", ".join(VARIABLES)
            raise UsageError(f"unknown variable {name!r}{did_you_mean(name, VARIABLES)}; allowed: {allowed}")


def _exit(error: OpmatrixError) -> NoReturn:
    # doit shows a traceback for every error that is not its own.
    print(error, file=sys.stderr, flush=True)
    raise SystemExit(error.exit_code) from error
