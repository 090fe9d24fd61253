"""The folder of a wheel's operators for the package `kernels`: `doit dist --format hf-kernel`."""
