"""Test data: arrays from descriptions, expected outputs from a reference, files, and how two arrays compare."""
