"""The error checks of the C++ bindings on the values of attributes, as KERNEL_CHECK statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opmatrix.codegen.cpp import literal, quoted
from opmatrix.spec import Attribute, OpSpec


@dataclass(frozen=True, kw_only=True)
class Check:
    """One KERNEL_CHECK, and the statement around it, if any: ``if (x_given)``."""

    arguments: list[str]
    guard: str | None = None


def limits(
    spec: OpSpec, given: Attribute, *, variable: str, shown: str, suffix: str, there: str | None = None
) -> Check | None:
    """Return the check of a value, which NaN fails; `shown` is its name in the message, `suffix` a float literal's.
    `there` is the bool that tells whether it is there, if it is optional."""
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
    guard = f"for (const auto item : {variable})" if many else f"if ({there})" if there else None
    arguments = [" && ".join(conditions), quoted(text), item]
    return Check(arguments=arguments, guard=guard)


def _equal(given: Attribute, variable: str, value: Any, suffix: str) -> str:
    if isinstance(value, str):
        return f"equal({variable}, {quoted(value)})"
    return f"{variable} == {literal(float(value) if given.kind == 'float' else value, suffix)}"
