"""What `doit` knows of this project: the steps that pipeline.steps plans, as tasks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from doit import get_var
from doit.task import Task

from pipeline.layout import Layout
from pipeline.load import load_operators
from pipeline.project import default_cells, installed, step_seconds
from pipeline.runner.loader import resume_in
from pipeline.runner.tasks import doit_tasks
from pipeline.steps import Plan, steps
from pipeline.toolchain.find import find_toolchain

LAYOUT = Layout(Path(__file__).resolve().parent)
resume_in(LAYOUT.root, sys.argv[1:])


def task_pipeline() -> Iterator[Task]:
    """Plan every operator in every cell; `doit opsets=all` takes all that the exporters can write."""
    versions, opsets = installed(), get_var("opsets", "default")
    plan = Plan(
        layout=LAYOUT,
        operators=load_operators(LAYOUT),
        cells=default_cells(LAYOUT, opsets=opsets, versions=versions),
        versions=versions,
        toolchain=find_toolchain(os.environ),
        environ=os.environ,
        opsets=opsets,
        seconds=step_seconds(LAYOUT),
    )
    return doit_tasks(steps(plan))
