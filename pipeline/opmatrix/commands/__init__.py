"""The command line: one module per doit command, the program `doit` runs, and the tasks of a project's dodo.py."""
