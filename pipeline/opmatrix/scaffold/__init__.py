"""What `doit new` writes: a torch schema, an ATen operator or a node of a model as the files of an operator."""
