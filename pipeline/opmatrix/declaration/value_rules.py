"""What a `ValueRule` means: its limits as expressions and as numbers, the names in them, and its words in messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from opmatrix.declaration.size_expressions import named_sizes, size_owners, value
from opmatrix.declaration.torch_signature import as_float32
from opmatrix.spec import Attribute, AttributeValue, Input, OpSpec, ValueRule

Limit = float | str | None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The inclusive limits of one tensor's values, as numbers."""

    minimum: float | None
    maximum: float | None


@dataclass(frozen=True, kw_only=True)
class Name:
    """A name in the limits of a rule: the size of an axis of a required input, or an attribute."""

    name: str
    owner: tuple[str, int] | None
    attribute: Attribute | None


def ruled_inputs(spec: OpSpec) -> Iterator[tuple[Input, ValueRule]]:
    """Yield the inputs that have a rule."""
    yield from ((part, part.values) for part in spec.inputs if part.values is not None)


def limit_expressions(rule: ValueRule) -> tuple[Limit, Limit]:
    """Return minimum and maximum of a rule: numbers, expressions, or None. Those of indices follow from the size."""
    if rule.index_into is None:
        return rule.minimum, rule.maximum
    size = _in_brackets(rule.index_into)
    return f"0 - {size}" if rule.negative else 0, f"{size} - 1"


def usable_attributes(spec: OpSpec) -> dict[str, Attribute]:
    """Return the attributes that limits can name: numbers that ONNX has too, without those that share a size's name."""
    sizes = size_owners(spec)
    return {
        a.name: a
        for a in spec.attributes
        if a.kind in ("int", "float") and not a.torch_only and a.name not in sizes
    }  # fmt: skip


def names(spec: OpSpec, rule: ValueRule) -> list[Name]:
    """Return the names in the limits of a valid rule, each once."""
    found = [word for limit in limit_expressions(rule) if isinstance(limit, str) for word in words(limit)]
    owners, attributes = size_owners(spec), usable_attributes(spec)
    return [Name(name=n, owner=owners.get(n), attribute=attributes.get(n)) for n in dict.fromkeys(found)]


def words(expression: str) -> list[str]:
    """Return the names in an expression."""
    return re.findall(r"[^\W\d]\w*", expression)


def known_numbers(
    spec: OpSpec, shapes: Iterable[tuple[Input, tuple[int, ...]]], attributes: Mapping[str, AttributeValue]
) -> dict[str, float]:
    """Return the number for each name that limits can have: sizes of the given shapes, attributes rounded as in ONNX.

    A missing attribute has its default.
    """
    usable = usable_attributes(spec)
    values = {name: attributes.get(name, a.default) for name, a in usable.items()}
    rounded = {name: as_float32(usable[name], v) for name, v in values.items() if v is not None}
    numbers = {name: v for name, v in rounded.items() if isinstance(v, int | float)}
    return numbers | named_sizes(shapes)


def limits(rule: ValueRule, numbers: Mapping[str, float]) -> Limits:
    """Return the limits as numbers; `numbers` has a number for each name."""

    def number(limit: Limit) -> float | None:
        if not isinstance(limit, str):
            return limit
        if limit in numbers:  # perhaps a float
            return numbers[limit]
        return value(limit, {name: n for name, n in numbers.items() if isinstance(n, int)})

    minimum, maximum = limit_expressions(rule)
    return Limits(minimum=number(minimum), maximum=number(maximum))


def described(rule: ValueRule) -> str:
    """Return what each value must be, such as "in [0, N)" or "finite and at least 0"; "" if the rule does not say."""
    found = ["finite"] if rule.finite else []
    if rule.index_into is not None:
        size = rule.index_into
        found.append(f"in [{f'-{_in_brackets(size)}' if rule.negative else 0}, {size})")
    if rule.minimum is not None:
        found.append(f"at least {_shown(rule.minimum)}")
    if rule.maximum is not None:
        found.append(f"at most {_shown(rule.maximum)}")
    if rule.allowed is not None:
        found.append(f"one of {', '.join(map(_shown, rule.allowed))}")
    return " and ".join(found)


def described_order(rule: ValueRule) -> str:
    """Return what the values along the last axis must be, such as "sorted in ascending order"; "" for any order."""
    if rule.sorted is None:
        return "unique" if rule.unique else ""
    return f"strictly {rule.sorted}" if rule.unique else f"sorted in {rule.sorted} order"


def summary(rule: ValueRule) -> str:
    """Return the whole rule in a few words, for schemas and pages: "in [0, N); sorted in ascending order"."""
    parts = (described(rule), described_order(rule), "at least one element" if rule.non_empty else "")
    return "; ".join(part for part in parts if part)


def _shown(limit: float | str) -> str:
    return limit if isinstance(limit, str) else f"{limit:g}" if isinstance(limit, float) else str(limit)


def _in_brackets(size: int | str) -> str:
    return str(size) if isinstance(size, int) or size.isidentifier() else f"({size})"
