"""The Markdown page that describes the operators of a project."""
