"""The task creator that the dodo.py of a project calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from doit import get_var
from doit.task import Task

from opmatrix.commands.doit_loader import VARIABLES, resume_in
from opmatrix.engine.doit_tasks import doit_tasks
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.matrix.cells import Choice
from opmatrix.project.paths import Paths


def tasks_of(dodo: str) -> Callable[[], Iterator[Task]]:
    """Return the task creator of the project whose dodo.py is `dodo`: the steps of every operator in every cell.

    `doit torch=2.9 ort=1.18 opsets=18` chooses cells. A doit that was started in another folder starts again here.
    """
    paths = Paths(Path(dodo).resolve().parent)
    resume_in(paths.root, sys.argv[1:])

    def task_pipeline() -> Iterator[Task]:
        choice = Choice(**{name: get_var(name, "default") for name in VARIABLES})
        return doit_tasks(load_or_plan(paths, choice=choice, environ=os.environ))

    return task_pipeline
