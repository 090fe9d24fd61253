"""Check the value of an attribute: its type, allowed values and limits. A wheel of operators has a copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from opmatrix.basics.errors import did_you_mean
from opmatrix.spec import Attribute, AttributeValue

FLOAT32_MAX = 3.4028234663852886e38

_PYTHON: Mapping[str, Callable[[Any], bool]] = {
    "float": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool) and -(2**63) <= v < 2**63,
    "string": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
}


def value_mistake(attribute: Attribute, value: AttributeValue) -> str | None:
    """Return why `attribute` cannot have `value`, or None."""
    if value is None and attribute.optional:
        return None
    if attribute.kind == "tensor":
        return _tensor_mistake(attribute, value)
    kind, many = attribute.kind.removesuffix("s"), attribute.kind.endswith("s")
    items = value if many and isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) != many or kind not in _PYTHON or not all(map(_PYTHON[kind], items)):
        return f"found {value!r}, allowed: {'a tuple of ' if many else ''}{kind}"
    if attribute.allowed is not None and value not in attribute.allowed:
        names = [repr(a) for a in attribute.allowed]
        return f"found {value!r}, allowed: {', '.join(names)}{did_you_mean(repr(value), names)}"
    numbers = [n for n in items if isinstance(n, int | float) and not isinstance(n, bool)]
    low = -math.inf if attribute.minimum is None else attribute.minimum
    high = math.inf if attribute.maximum is None else attribute.maximum
    bounded = attribute.minimum is not None or attribute.maximum is not None
    for number in numbers:
        if bounded and not low <= number <= high:  # NaN is outside all limits
            return f"found {number!r}, allowed: {low} to {high}"
        if kind == "float" and FLOAT32_MAX < abs(number) < math.inf:
            return f"found {number!r}, allowed: what float32 can hold, as ONNX stores it"
    return None


def _tensor_mistake(attribute: Attribute, value: AttributeValue) -> str | None:
    """Return why a tensor cannot have nested tuples as its value, or None."""
    shape, level = list[int](), [value]
    while level and all(isinstance(part, tuple) for part in level):
        if len({len(part) for part in level if isinstance(part, tuple)}) > 1:
            return f"found {value!r}, allowed: nested tuples of equal length"
        shape.append(len(level[0]))  # type: ignore[arg-type]  # a tuple
        level = [item for part in level if isinstance(part, tuple) for item in part]
    dims, dtype = attribute.dims or (), attribute.type or "float32"
    if len(shape) != len(dims) and (level or len(shape) > len(dims)):
        return f"found {len(shape)} axes, allowed: {len(dims)}, those of dims"
    if any(dim not in (None, size) for dim, size in zip(dims, shape, strict=False)):
        return f"found the shape {tuple(shape)}, allowed: {dims}, with any size for None"
    kind = "bool" if dtype == "bool" else "float" if dtype.startswith("float") else "int"
    low, high = int_limits(dtype) if kind == "int" else (-math.inf, math.inf)
    wrong = [item for item in level if not _PYTHON[kind](item) or (isinstance(item, int) and not low <= item <= high)]
    return f"found {wrong[0]!r} in a tensor, allowed: what {dtype} holds" if wrong else None


def int_limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the greatest number of an integer dtype."""
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
