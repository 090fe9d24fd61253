"""Generated code of an operator: C++ bindings and Python modules."""
