"""Python source of values of `opmatrix.spec`, for wheels, new cases and new operators; layout of generated code."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from opmatrix import spec
from opmatrix.spec import as_data

WIDTH = 96  # of what is written on one line, without its indentation


def source(value: object, *, width: float = WIDTH) -> str:
    """Return a value as Python source, without the fields that have their defaults, in lines of `width` columns."""
    if isinstance(value, tuple):
        parts = [*(source(v, width=width) for v in value), *([""] if len(value) == 1 else [])]
        return bracket("(", parts, ")", width=width)
    if isinstance(value, Mapping):
        parts = [f"{source(k)}: {source(v, width=width)}" for k, v in value.items()]
        return bracket("{", parts, "}", width=width)
    if dataclasses.is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if not _is_default(f, value)}
        parts = [f"{name}={_pieces(v) if name == 'schema' else source(v, width=width)}" for name, v in given.items()]
        return bracket(f"{type(value).__name__}(", parts, ")", width=width)
    return literal(value)


def _pieces(schema: str) -> str:
    """Return a torch schema as a literal, in parentheses and several pieces if it is long."""
    if len(schema) <= WIDTH:
        return literal(schema)
    found = [""]
    for part in re.split(r"(?<=, )", schema):
        if len(found[-1]) + len(part) > WIDTH:
            found.append("")
        found[-1] += part
    return "(\n" + textwrap.indent("\n".join(map(literal, found)), "    ") + "\n)"


def literal(value: object) -> str:
    """Return a literal: strings with double quotes unless that needs more backslashes, floats also for NaN and inf."""
    shown = repr(value)
    if isinstance(value, float):
        return shown.replace("e-0", "e-") if math.isfinite(value) else f'float("{value}")'
    return f'"{shown[1:-1]}"' if isinstance(value, str) and shown[0] == "'" and '"' not in value else shown


def bracket(opening: str, parts: Iterable[str], closing: str, *, comma: str = ",", width: float = WIDTH) -> str:
    """Return ``opening(parts)closing``: on one line where it is short, else one part a line, the last with `comma`.

    An empty part at the end adds a comma after the one before it.
    """
    parts = list(parts)
    line = f"{opening}{', '.join(parts).rstrip(' ')}{closing}"
    if "\n" not in line and len(line) <= width:
        return line
    body = ",\n".join(filter(None, parts))
    return f"{opening}\n{textwrap.indent(body, '    ')}{comma}\n{closing}"


def names(text: str) -> list[str]:
    """Return the names of `opmatrix.spec` that Python source uses, such as ``Model``."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return sorted(used & vars(spec).keys())


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return bool(as_data(getattr(value, field.name)) == as_data(default))
