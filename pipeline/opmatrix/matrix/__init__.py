"""Cells: which are legal, by which data, and how tox names them."""
