"""The words of ops/<name>/bench.py, which a project imports as `opmatrix.bench.spec`."""
