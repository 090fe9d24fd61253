"""The error checks of the C++ bindings: values of attributes and shapes of inputs, as KERNEL_CHECK statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opmatrix.codegen.cpp import literal, quoted
from opmatrix.declaration.size_expressions import size_owners
from opmatrix.declaration.torch_signature import is_required
from opmatrix.spec import Attribute, Input, OpSpec


@dataclass(frozen=True, kw_only=True)
class Check:
    """One KERNEL_CHECK, and the statement around it, if any: ``if (x != nullptr)``."""

    arguments: list[str]
    guard: str | None = None


def limits(spec: OpSpec, given: Attribute, *, variable: str, shown: str, suffix: str) -> Check | None:
    """Return the check of a value, which NaN fails; `shown` is its name in the message, `suffix` a float literal's."""
    many = given.kind.endswith("s")
    item = "item" if many else variable
    bounds = [(">=", "at least", given.minimum), ("<=", "at most", given.maximum)]
    found = [(sign, words, bound) for sign, words, bound in bounds if bound is not None]
    number = int if given.kind.startswith("int") else float
    conditions = [f"{item} {sign} {literal(number(bound), suffix)}" for sign, _, bound in found]
    words = [f"{words} {bound:g}" for _, words, bound in found]
    if given.allowed is not None:
        choice = " || ".join(_equal(given, item, value, suffix) for value in given.allowed)
        conditions.append(f"({choice})" if found else choice)
        words.append("one of " + ", ".join(map(str, given.allowed)))
    if not conditions:
        return None
    text = f"{spec.name}: {shown} must {'each be ' if many else 'be '}{' and '.join(words)}, got "
    arguments = [" && ".join(conditions), quoted(text), item]
    return Check(arguments=arguments, guard=f"for (const auto item : {variable})" if many else None)


def _equal(given: Attribute, variable: str, value: Any, suffix: str) -> str:
    if isinstance(value, str):
        return f"equal({variable}, {quoted(value)})"
    return f"{variable} == {literal(float(value) if given.kind == 'float' else value, suffix)}"


def shape_parameters(spec: OpSpec) -> list[str]:
    """Return the parameters of the function with the `shape_checks`; an absent input is an empty list."""
    counted = (i for i in spec.inputs if shape_counts(spec, i))
    return [f"{'Sizes' if is_required(i) else 'List<Sizes>'} {i.name}" for i in counted]


def shape_counts(spec: OpSpec, given: Input) -> bool:
    """Return whether the declaration restricts an input's shape, or another's by this one."""
    return given.dims is not None or given.same_as is not None or any(i.same_as == given.name for i in spec.inputs)


def shape_checks(spec: OpSpec) -> Iterator[Check]:
    """Yield the checks; a size is compared with the first required input that has its name."""
    known = size_owners(spec)
    for given in spec.inputs:
        if given.same_as is not None:
            yield _same_shape(spec, given, given.same_as)
        if given.dims is None:
            continue
        shown = given.name if is_required(given) else f"{given.name}_sizes"
        fixed = [d for d in given.dims if d != "..."]
        conditions = [f"{shown}.rank {'>=' if '...' in given.dims else '=='} {len(fixed)}"]
        others: dict[str, tuple[str, str]] = {}  # name of a size: the expression that has it, and its input
        for axis, size in enumerate(fixed):
            here = f"{shown}[{axis}]"
            if isinstance(size, int):
                conditions.append(f"{here} == {size}")
            elif known[size] != (given.name, axis):
                owner, at = known[size]
                conditions.append(f"{here} == {owner}[{at}]")
                others[size] = (f"{owner}[{at}]", owner)
        joined = " && ".join(conditions)
        for condition in [joined] if len(joined) < 100 else conditions:  # one check each where the line is too long
            yield Check(arguments=[condition, *_shape_message(spec, given, shown, others)], guard=_guard(given))


def _same_shape(spec: OpSpec, given: Input, other: str) -> Check:
    shown = given.name if is_required(given) else f"{given.name}_sizes"
    text = quoted(f"{spec.name}: {given.name} must have the shape of {other}, ")
    return Check(arguments=[f"{shown} == {other}", text, other, quoted(", got "), shown], guard=_guard(given))


def _guard(given: Input) -> str | None:
    """Return the loop over the shapes of an optional or variadic input."""
    return None if is_required(given) else f"for (const Sizes {given.name}_sizes : {given.name})"


def _shape_message(spec: OpSpec, given: Input, shown: str, others: Mapping[str, tuple[str, str]]) -> list[str]:
    shape = ", ".join(map(str, given.dims or ())) + ("," if len(given.dims or ()) == 1 else "")
    text = f"{spec.name}: {given.name} must have shape ({shape})"
    parts: list[str] = []
    separator = " with "
    for name, (expression, owner) in others.items():
        if owner == given.name:
            continue  # its own sizes are shown anyway
        parts += [quoted(f"{text}{separator}{name} = "), expression]
        text, separator = f" as in {owner}", " and "
    return [*parts, quoted(f"{text}, got "), shown]
