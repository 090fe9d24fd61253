"""The tasks of this project: the steps that opmatrix plans for the operators in ops/ and native/."""

from pipeline.runner.dodo import tasks_of

task_pipeline = tasks_of(__file__)
