"""Text that follows from a declaration: C++ and Python."""
