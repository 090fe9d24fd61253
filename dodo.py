"""What `doit` knows of this project: the steps that pipeline.steps plans, as tasks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from doit import get_var
from doit.task import Task

from pipeline.layout import Layout
from pipeline.matrix import Choice
from pipeline.runner.loader import VARIABLES, resume_in
from pipeline.runner.planned import planned
from pipeline.runner.tasks import doit_tasks

LAYOUT = Layout(Path(__file__).resolve().parent)
resume_in(LAYOUT.root, sys.argv[1:])


def task_pipeline() -> Iterator[Task]:
    """Plan every operator in every cell; `doit torch=2.9 ort=1.18 opsets=18` chooses cells, docs/matrix.md says how."""
    choice = Choice(**{name: get_var(name, "default") for name in VARIABLES})
    return doit_tasks(planned(LAYOUT, choice=choice, environ=os.environ))
