"""A validator of the few keywords that the schemas of this project use; an unknown keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


def mistakes(
    value: Any, schema: dict[str, Any], at: str = "report", *, whole: dict[str, Any] | None = None
) -> Iterator[str]:
    """Yield how a value differs from a schema; `whole` is the schema that has the definitions, by default this one."""
    whole = schema if whole is None else whole
    for word, asked in schema.items():
        match word:
            case "$schema" | "$defs" | "title" | "description":
                pass
            case "$ref":
                yield from mistakes(value, whole["$defs"][asked.removeprefix("#/$defs/")], at, whole=whole)
            case "type":
                if not any(TYPES[name](value) for name in ([asked] if isinstance(asked, str) else asked)):
                    yield f"{at}: {value!r} is no {asked}"
            case "const" | "enum":
                if value not in (asked if word == "enum" else [asked]):
                    yield f"{at}: {value!r} is not {asked}"
            case "anyOf":
                if all(any(mistakes(value, one, at, whole=whole)) for one in asked):
                    yield f"{at}: {value!r} is none of {asked}"
            case "minimum":
                if isinstance(value, int | float) and value < asked:
                    yield f"{at}: {value!r} is below {asked}"
            case "pattern":
                if isinstance(value, str) and not re.search(asked, value):
                    yield f"{at}: {value!r} does not match {asked}"
            case "minItems" | "maxItems":
                if isinstance(value, list) and (len(value) - asked) * (-1 if word == "minItems" else 1) > 0:
                    yield f"{at}: {len(value)} items"
            case "items":
                for n, item in enumerate(value if isinstance(value, list) else ()):
                    yield from mistakes(item, asked, f"{at}[{n}]", whole=whole)
            case "required":
                yield from (f"{at}: no {key!r}" for key in asked if isinstance(value, dict) and key not in value)
            case "properties":
                for key in asked.keys() & (value if isinstance(value, dict) else ()):
                    yield from mistakes(value[key], asked[key], f"{at}.{key}", whole=whole)
            case "additionalProperties":
                for key in (value if isinstance(value, dict) else {}).keys() - schema.get("properties", {}).keys():
                    if asked is False:
                        yield f"{at}: unknown key {key!r}"
                    else:
                        yield from mistakes(value[key], asked, f"{at}.{key}", whole=whole)
            case _:
                raise AssertionError(f"the validator does not know {word!r}")
