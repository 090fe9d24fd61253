"""What a person types: one module per command of doit, its program, and the dodo.py of a project."""
