"""`doit new`: draft an operator from a torch schema, an ATen operator or the nodes of a model, and write its files."""
