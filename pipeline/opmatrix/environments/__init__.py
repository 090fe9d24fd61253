"""Virtual environments: the main one, those of the matrix, and those of tox."""
