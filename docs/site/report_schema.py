"""The page about report.json, from its JSON Schema: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opmatrix.report.operator_pages import code, codes, plain, table

Schema = Mapping[str, Any]


def render(schema: Schema) -> str:
    """Return the page. Raises ValueError for a key without a description in the schema."""
    definitions = schema["$defs"]
    objects = {name: one for name, one in definitions.items() if "properties" in one}
    parts = [
        "# report.json",
        f"{plain(schema['description'])} How it is made: [the report](../report.md). The schema itself: "
        "[report.schema.json](../../pipeline/opmatrix/report/report.schema.json), "
        "JSON Schema 2020-12. All keys of the tables are there, unless they are said to be optional.",
        "## The document\n\n" + _table(schema, ""),
        *(f"## {name}\n\n{_described(one, name)}\n\n{_table(one, name)}" for name, one in objects.items()),
        *(f"## {n}\n\n{_described(d, n)}: {_type(d)}" for n, d in definitions.items() if n not in objects),
    ]
    return "\n\n".join(parts) + "\n"


def _described(schema: Schema, where: str) -> str:
    if "description" not in schema:
        raise ValueError(f"report.schema.json: {where} has no description; write one")
    return plain(schema["description"])


def _table(schema: Schema, where: str) -> str:
    return table(("key", "type", "", "meaning"), _rows(schema, where))


def _rows(schema: Schema, where: str, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each key, and the rows of an object's keys below it."""
    for key, value in schema["properties"].items():
        required = "" if key in schema.get("required", ()) else "optional"
        yield code(prefix + key), _type(value), required, _described(value, f"{where}.{key}")
        inner = value.get("items", value)
        if "properties" in inner:
            yield from _rows(inner, f"{where}.{key}", f"{prefix}{key}{'[]' if 'items' in value else ''}.")


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return "one of " + codes(schema["enum"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "items" in schema:
        types = [f"list of {_type(schema['items'])}" if t == "array" else t for t in types]
    if isinstance(schema.get("additionalProperties"), dict):
        types = [f"object of {_type(schema['additionalProperties'])}" if t == "object" else t for t in types]
    least = [f"from {schema['minimum']} on"] if "minimum" in schema else []
    pattern = [f"as {code(schema['pattern'])}"] if "pattern" in schema else []
    return ", ".join([" or ".join(types), *least, *pattern])
