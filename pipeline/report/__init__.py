"""Verdicts as a table, as JSON and as JUnit."""
