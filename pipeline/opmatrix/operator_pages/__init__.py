"""The reference of a project's operators, as a page."""
