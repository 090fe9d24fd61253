"""Test data: arrays of the cases, expected outputs from reference.py, data sets, drawn cases, comparison of arrays."""
