"""Mutants of an operator, which of them its gates find, and what that says about the gates."""
