"""Paths, settings and format of a project, its cells and dtypes, and the code that judges it."""
