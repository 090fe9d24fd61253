"""Inputs that a declaration allows, drawn from it and from its cases; calls that it forbids."""
