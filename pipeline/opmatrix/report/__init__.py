"""Verdicts as a table, as JSON, as JUnit, as Markdown and as a page."""
