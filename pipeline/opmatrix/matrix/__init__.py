"""Cells of the matrix: the tables of which are legal, rows measured by `doit probe`, and names in tox."""
