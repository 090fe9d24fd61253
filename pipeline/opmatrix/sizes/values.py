"""What a `ValueRule` means: its limits as expressions and as numbers, the names in them, and its words in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from opmatrix.signature.signature import as_float32
from opmatrix.sizes.expressions import Size, Term, evaluate, parse, terms
from opmatrix.sizes.known import Known
from opmatrix.sizes.rules import definitions
from opmatrix.spec import Attribute, AttributeValue, Input, OpSpec, ValueRule

Limit = float | str | None
L = TypeVar("L")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The inclusive limits of one tensor's values, as numbers."""

    minimum: float | None
    maximum: float | None


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
    """Return the attributes that alone can be a limit: numbers that ONNX has too, without the name of a size."""
    known = definitions(spec)
    return {
        a.name: a
        for a in spec.attributes
        if a.kind in ("int", "float") and not (a.torch_only or a.optional) and a.name not in known
    }  # fmt: skip


def limit_terms(rule: ValueRule) -> list[Term]:
    """Return the terms in the limits of a valid rule, each once."""
    found = {t.key: t for limit in limit_expressions(rule) if isinstance(limit, str) for t in terms(limit)}
    return [*found.values()]


def known_numbers(
    spec: OpSpec, shapes: Iterable[tuple[Input, tuple[int, ...]]], attributes: Mapping[str, AttributeValue]
) -> dict[str, float]:
    """Return the number for each term in the limits of all rules, from the shapes and attributes of one call.

    A missing attribute has its default; floats are rounded as in ONNX. Raises ValueError for an axis that an input
    lacks.
    """
    first = {part.name: shape for part, shape in reversed([*shapes])}
    known, usable = Known(spec=spec, shapes=first, attributes=attributes), usable_attributes(spec)
    numbers: dict[str, float] = {}
    for term in (term for _, rule in ruled_inputs(spec) for term in limit_terms(rule)):
        number: object = None
        if (attribute := usable.get(term.key)) is not None:
            number = as_float32(attribute, attributes.get(term.key, attribute.default))
        else:
            number = known.term(term)
        if isinstance(number, int | float):
            numbers[term.key] = number
    return numbers


def limits(rule: ValueRule, numbers: Mapping[str, float]) -> Limits:
    """Return the limits as numbers; `numbers` has a number for each term."""

    def size(term: Term) -> Size:
        number = numbers[term.key]
        return number if isinstance(number, int) else None

    def number(limit: Limit) -> float | None:
        if not isinstance(limit, str):
            return limit
        if limit in numbers:  # perhaps a float
            return numbers[limit]
        integer = evaluate(parse(limit), size)
        assert isinstance(integer, int), f"{limit!r} is not a number with {numbers}"
        return integer

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


def ends(rule: ValueRule, limits: tuple[L, L]) -> tuple[L, L]:
    """Return minimum and maximum of a rule that `spans` in the order in which they are along the last axis."""
    minimum, maximum = limits
    return (maximum, minimum) if rule.sorted == "descending" else (minimum, maximum)


def described_ends(rule: ValueRule) -> str:
    """Return where the values along the last axis must start and end: "start at 0 and end at N"; "" for anywhere."""
    if not rule.spans or rule.minimum is None or rule.maximum is None:
        return ""
    first, last = ends(rule, (_shown(rule.minimum), _shown(rule.maximum)))
    return f"start at {first} and end at {last}"


def summary(rule: ValueRule) -> str:
    """Return the whole rule in a few words, for schemas and pages: "in [0, N); sorted in ascending order"."""
    described_rule = (described(rule), described_order(rule), described_ends(rule))
    parts = (*described_rule, "at least one element" if rule.non_empty else "")
    return "; ".join(part for part in parts if part)


def _shown(limit: float | str) -> str:
    return limit if isinstance(limit, str) else f"{limit:g}" if isinstance(limit, float) else str(limit)


def _in_brackets(size: int | str) -> str:
    return str(size) if isinstance(size, int) or size.isidentifier() else f"({size})"
