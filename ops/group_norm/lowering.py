"""Group normalization composed of ONNX's own operators."""

from typing import Any


def decomposed(g: Any, x: Any, num_groups: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    """Compute in double, whatever x is, and centre twice: a large mean costs nothing of the result.

    Every size is taken from the tensors, so that the same nodes serve every rank and are the body of a function.
    """

    def cast(value: Any, dtype: int) -> Any:
        return g.op("Cast", value, to_i=dtype)

    def size(axis: int) -> Any:
        return g.op("Gather", shape, g.constant([axis], "int64"), axis_i=0)

    def behind(axis: int) -> Any:
        if g.opset < 10:
            return g.op("Slice", shape, axes_i=[0], starts_i=[axis], ends_i=[END])
        return g.op("Slice", shape, g.constant([axis], "int64"), g.constant([END], "int64"))

    def mean(value: Any) -> Any:
        if g.opset < 18:
            return g.op("ReduceMean", value, axes_i=[2, 3], keepdims_i=1)
        return g.op("ReduceMean", value, g.constant([2, 3], "int64"), keepdims_i=1, noop_with_empty_axes_i=0)

    def reshape(value: Any, *sizes: Any) -> Any:
        # Without allowzero a size of 0 is the one that stands there already: right for no samples, not for no pixels.
        more = {"allowzero_i": 1} if g.opset >= 14 else {}
        return g.op("Reshape", value, g.op("Concat", *sizes, axis_i=0) if len(sizes) > 1 else sizes[0], **more)

    if g.dtype(x) == "bfloat16" and g.opset < 13:
        g.unsupported("Shape and Cast take bfloat16 since opset 13")
    shape, one = g.op("Shape", x), g.constant([1], "int64")
    samples, channels = size(0), size(1)
    pixels = g.op("ReduceProd", g.op("Concat", behind(2), one, axis_i=0), keepdims_i=1)
    # Divided as double: a number of groups that is 0, broken, or does not divide the channels gives shapes that Reshape
    # refuses, where integers would stop the process or go on with other groups.
    groups = cast(num_groups, INT64)
    members = cast(g.op("Div", cast(channels, DOUBLE), cast(num_groups, DOUBLE)), INT64)
    grouped = reshape(cast(x, DOUBLE), samples, groups, members, pixels)
    centred = g.op("Sub", grouped, mean(grouped))
    centred = g.op("Sub", centred, mean(centred))
    variance = mean(g.op("Mul", centred, centred))
    normal = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.constant(epsilon, "float64"))))
    factor, summand = (reshape(cast(v, DOUBLE), groups, members, one) for v in (scale, bias))
    y = g.op("Add", g.op("Mul", normal, factor), summand)
    return cast(reshape(y, shape), DOUBLE if g.dtype(x) == "float64" else HALVES.get(g.dtype(x), FLOAT))


FLOAT, INT64, DOUBLE = 1, 7, 11  # of onnx.TensorProto
HALVES = {"float16": 10, "bfloat16": 16}
END = 2**63 - 1  # Slice cuts it down to the last
