"""Paths and settings of a project."""
