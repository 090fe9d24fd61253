"""A declaration as Python text: what a wheel holds of it. Pure."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from pipeline.spec import OpSpec

WIDTH = 96  # of what is put on one line, wherever it stands
# What concerns compiling alone.
LEFT_OUT = ("kernel", "headers")


def render(spec: OpSpec, package: str) -> str:
    """Return a module that defines SPEC, with all that registering and exporting take from it."""
    shipped = dataclasses.replace(spec, tolerances={})  # whose numbers are for those who test
    names = sorted({type(part).__name__ for part in _parts(shipped)})
    imports = f"from {package}._opmatrix.spec import {', '.join(names)}"
    return f'"""{escaped(spec.summary)}"""\n\n{imports}\n\nSPEC = {_value(shipped)}\n'


def escaped(text: str) -> str:
    """Return what stands for `text` between triple double quotes."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'{text[:-1]}\\"' if text.endswith('"') else text


def _parts(value: object) -> Iterator[object]:
    """Yield every declared value below `value`, itself included."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in _fields(value):
            yield from _parts(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            yield from _parts(item)


def _fields(value: object) -> list[str]:
    """Return the fields that must be written: those that differ from their defaults."""
    found = []
    for field in dataclasses.fields(value):  # type: ignore[arg-type]  # asked of dataclasses alone
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        if field.name not in LEFT_OUT and getattr(value, field.name) != default:
            found.append(field.name)
    return found


def _value(value: object) -> str:
    if dataclasses.is_dataclass(value):
        parts = [f"{name}={_value(getattr(value, name))}" for name in _fields(value)]
        return _laid_out(f"{type(value).__name__}(", parts, ")")
    if isinstance(value, tuple):
        items = [_value(item) for item in value]
        return _laid_out("(", [*items, ""] if len(items) == 1 else items, ")")
    if isinstance(value, Mapping):
        return _laid_out("{", [f"{key!r}: {_value(item)}" for key, item in value.items()], "}")
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def _laid_out(opening: str, parts: Sequence[str], closing: str) -> str:
    line = f"{opening}{', '.join(parts).rstrip(' ')}{closing}"
    if "\n" not in line and len(line) <= WIDTH:
        return line
    body = "".join(f"{part},\n" for part in parts if part)
    return f"{opening}\n{textwrap.indent(body, '    ')}{closing}"
