"""The command line: one module per doit command, the program `doit` runs, the table of stages, and the tasks of a
project's dodo.py.
"""
