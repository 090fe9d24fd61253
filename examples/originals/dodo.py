"""The tasks of this project: the steps that opmatrix plans for the operators in ops/ and native/."""

from opmatrix.commands.dodo import tasks_of

task_pipeline = tasks_of(__file__)
