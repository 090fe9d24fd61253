"""What `doit` knows of this project: the steps that pipeline.steps plans, as tasks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from doit import get_var
from doit.task import Task

from pipeline.layout import Layout
from pipeline.runner.loader import resume_in
from pipeline.runner.planned import planned
from pipeline.runner.tasks import doit_tasks

LAYOUT = Layout(Path(__file__).resolve().parent)
resume_in(LAYOUT.root, sys.argv[1:])


def task_pipeline() -> Iterator[Task]:
    """Plan every operator in every cell; `doit opsets=all` takes all that the exporters can write."""
    return doit_tasks(planned(LAYOUT, opsets=get_var("opsets", "default"), environ=os.environ))
