"""doit, extended through its own plugins: when a step is repeated, where it runs, and what its user sees.

tasks.py turns steps into doit's tasks; loader, journal, run and clean are what pyproject.toml names to doit.
"""
