"""Values of `pipeline.spec` as Python text, laid out as ruff would. Pure."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from pipeline.spec import as_data

WIDTH = 120


def literal(value: object) -> str:
    """Return a literal as ruff spells it: with double quotes unless that takes more backslashes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    shown = repr(value)
    if isinstance(value, float):
        return re.sub(r"e([-+])0", r"e\1", shown) if math.isfinite(value) else f'float("{value}")'
    return f'"{shown[1:-1]}"' if isinstance(value, str) and shown[0] == "'" and '"' not in value else shown


def source(value: object, *, indent: int = 0, short: int = 0) -> str:
    """Return a value as it is written, without the fields that have their defaults.

    `indent` is the margin of its lines, `short` how much more stands ahead of it and behind it in its own.
    """
    if isinstance(value, tuple):
        opening, parts, closing = "(", [source(v, indent=indent + 4, short=1) for v in value], ")"
        parts = [*parts[:-1], parts[-1] + "," * (len(parts) == 1)] if parts else []
    elif isinstance(value, Mapping):
        opening, closing = "{", "}"
        parts = [f"{literal(k)}: {source(v, indent=indent + 4, short=len(literal(k)) + 3)}" for k, v in value.items()]
    elif dataclasses.is_dataclass(value):
        opening, closing = f"{type(value).__name__}(", ")"
        parts = [
            f"{f.name}={source(found, indent=indent + 4, short=len(f.name) + 2)}"
            for f in dataclasses.fields(value)
            if as_data(found := getattr(value, f.name)) != as_data(_default(f))
        ]
    else:
        return literal(value)
    line = f"{opening}{', '.join(parts)}{closing}"
    if "\n" not in line and indent + short + len(line) <= WIDTH:
        return line
    margin = " " * indent
    body = "".join(f"{margin}    {part.removesuffix(',')},\n" for part in parts)
    return f"{opening}\n{body}{margin}{closing}"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
