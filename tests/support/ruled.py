"""A declaration with one input that has a rule, for unit tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opmatrix.spec import OpSpec, ValueRule
from tests.support.specs import FLOATS, declare, inputs


def ruled(rule: ValueRule, *, type: str = "int64", **fields: Any) -> OpSpec:
    """Return an operator of x (N, C) and v (M, K), whose values have the rule."""
    given = declare(
        "tied(x: T[N, C], i: I[N], groups=2, limit=0.5, mode='sum') -> y: T[M, C]",
        *inputs(f"v: {type}[M, K]", values=rule),
        torch="tied::tied",
        onnx="tied::Tied",
        summary="Ties.",
        types=FLOATS | {"I": ("uint8", "int32")},
    )
    return replace(given, **fields)
