"""Virtual environments: the main one, those of the matrix, tox's names for them."""
