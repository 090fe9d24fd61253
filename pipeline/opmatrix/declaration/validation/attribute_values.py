"""Check the value of an attribute: its type, allowed values and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from opmatrix.errors import did_you_mean
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
    kind, many = attribute.kind.removesuffix("s"), attribute.kind.endswith("s")
    items = value if many and isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) != many or kind not in _PYTHON or not all(map(_PYTHON[kind], items)):
        return f"found {value!r}, allowed: {'a tuple of ' if many else ''}{kind}"
    if attribute.allowed is not None and value not in attribute.allowed:
        names = [repr(a) for a in attribute.allowed]
        return f"found {value!r}, allowed: {', '.join(names)}{did_you_mean(repr(value), names)}"
    numbers = [n for n in items if isinstance(n, int | float) and not isinstance(n, bool)]
    return next((why for n in numbers if (why := _number_mistake(attribute, n))), None)


def _number_mistake(attribute: Attribute, number: float) -> str | None:
    low = -math.inf if attribute.minimum is None else attribute.minimum
    high = math.inf if attribute.maximum is None else attribute.maximum
    bounded = attribute.minimum is not None or attribute.maximum is not None
    if bounded and not low <= number <= high:  # NaN is outside all limits
        return f"found {number!r}, allowed: {low} to {high}"
    if attribute.kind.startswith("float") and FLOAT32_MAX < abs(number) < math.inf:
        return f"found {number!r}, allowed: what float32 can hold, as ONNX stores it"
    return None
