"""The words of `ops/<name>/bench.py`, which `doit bench` alone reads."""
