"""How torch's inverse becomes ONNX Runtime's."""

from typing import Any


def custom(g: Any, x: Any) -> Any:
    return g.op("com.microsoft::Inverse", square(g, x))


def square(g: Any, x: Any) -> Any:
    """Return x, times a number that is 1, and that cannot be had where matrices are not square: the run then fails.

    ONNX Runtime's Inverse does not look: it gives numbers for a small matrix, and ends the process for a wide one
    (1.31). Where both sizes are known, torch has looked.
    """
    rows, columns = (g.dim(x, g.rank(x) + axis) for axis in (-2, -1))
    if isinstance(rows, int) and isinstance(columns, int):
        return x
    rows, columns = (g.constant([size], "int64") if isinstance(size, int) else size for size in (rows, columns))
    # Not a Reshape: torch's optimizer takes one to sizes of equal names for nothing, and removes it (2.13).
    difference = g.op("Abs", g.op("Sub", rows, columns))
    return g.op("Mul", x, g.op("Gather", g.constant([1], g.dtype(x)), difference, axis_i=0))
