"""`doit bench`: how fast an operator is, beside what else computes the same and what the machine can do."""
