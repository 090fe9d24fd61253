"""doit, extended through its own plugins: when a step is repeated, where it runs, and what its user sees.

tasks.py turns steps into doit's tasks; program.py names loader, commands, state and reporters to doit; dodo.py is what
the dodo.py of every project consists of.
"""
