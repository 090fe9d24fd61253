"""`doit doctor`: what a machine and a project need, what is missing, and how to get it.

The standard library is enough, because the packages may be what is missing. Nothing is imported to find its version.
"""
