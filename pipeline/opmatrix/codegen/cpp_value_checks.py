"""The checks of the values of inputs in the C++ bindings: one function for each input with a `ValueRule`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.codegen.cpp import SIZE_FUNCTIONS, SizeCode, literal, quoted
from opmatrix.declaration.size_rules import resolved_terms, sources
from opmatrix.declaration.torch_signature import is_required
from opmatrix.declaration.value_rules import (
    Limit,
    Name,
    described,
    described_ends,
    described_order,
    ends,
    limit_expressions,
    names,
)
from opmatrix.spec import AttributeKind, Input, OpSpec, ValueRule

_KINDS: Mapping[AttributeKind, str] = {"int": "std::int64_t", "float": "float", "ints": "List<std::int64_t>"}


@dataclass(frozen=True, kw_only=True)
class ValueCheck:
    """The function that checks one input, and its calls in both bindings."""

    input: str
    loop: str | None  # the statement around its call, for an input that may be absent, or is any number of tensors
    views: str  # the variable with the view, or with all views
    function: str
    parameters: list[str]
    torch_arguments: list[str]
    ort_arguments: list[str]
    wrong: str  # the variable for the wrong element
    find: list[str] | None  # the arguments that find it
    checks: list[list[str]]  # the arguments of each KERNEL_CHECK
    divides: bool  # whether a limit needs sizes.h


def value_checks(spec: OpSpec) -> Iterator[ValueCheck]:
    """Yield the checks that bindings make, in the order of the inputs."""
    for part in spec.inputs:
        if part.values is not None and part.values.checked_by == "binding":
            yield _check(spec, part, part.values)


def _check(spec: OpSpec, part: Input, rule: ValueRule) -> ValueCheck:
    code = SizeCode(
        spec=spec, shape=lambda name: f"{name}.sizes" if name == part.name else name, attribute=lambda name: name
    )
    used = [term for limit in limit_expressions(rule) if isinstance(limit, str) for term in resolved_terms(spec, limit)]
    owners = list(dict.fromkeys(name for term in used for name in sources(spec, term) if name != part.name))
    attributes = [a for a in spec.attributes if a.name in {name for term in used for name in (term.of, term.at)}]
    view = {True: f"{part.name}_values", False: f"*{part.name}_values"}[is_required(part)]
    if part.variadic:
        view = "item"
    wrong = "wrong"
    while wrong in {part.name, *owners, *(a.name for a in attributes)}:
        wrong += "_"
    low, high = (_limit(limit, code) for limit in limit_expressions(rule))
    tensors = [view, *(f"{owner}.sizes()" for owner in owners)]
    return ValueCheck(
        input=part.name,
        loop=None
        if is_required(part)
        else f"for (const auto& item : {part.name}_values)"
        if part.variadic
        else f"if ({part.name}_values)",
        views=f"{part.name}_values",
        function=f"check_{part.name}_values",
        parameters=[f"const TensorView<const T>& {part.name}", *(f"Sizes {owner}" for owner in owners)]
        + [f"{_KINDS[a.kind]} {a.name}" for a in attributes],
        torch_arguments=[*tensors, *(a.name for a in attributes)],
        ort_arguments=[*tensors, *(f"{a.name}_{'.list()' * (a.kind == 'ints')}" for a in attributes)],
        wrong=wrong,
        find=_find(part.name, rule, (low, high)),
        checks=[*_checks(spec, part, rule, code, wrong)],
        divides=any(function in limit for limit in (low, high) for function in SIZE_FUNCTIONS),
    )


def _find(name: str, rule: ValueRule, limits: tuple[str, str]) -> list[str] | None:
    """Return the arguments that find a wrong element, or None where all elements are right."""
    allowed, order = "any_value()", "AnyOrder{}"
    if rule.allowed is not None:
        allowed = f"one_of({', '.join(map(_number, rule.allowed))})"
    elif limits != ("NoLimit{}", "NoLimit{}"):
        allowed = f"between({', '.join(limits)})"
    if rule.finite:
        allowed = f"finite({allowed})"
    if rule.sorted is not None:
        order = f"{'Strictly' if rule.unique else ''}{rule.sorted.capitalize()}{{}}"
    if rule.spans:
        return [name, allowed, order, f"Ends{{{', '.join(ends(rule, limits))}}}"]
    return [name, allowed, order] if (allowed, order) != ("any_value()", "AnyOrder{}") else None


def _checks(spec: OpSpec, part: Input, rule: ValueRule, code: SizeCode, wrong: str) -> Iterator[list[str]]:
    start = f"{spec.name}: {part.name} must "
    if rule.non_empty:
        text = quoted(f"{start}have at least one element, got shape ")
        yield [f"{part.name}.numel() > 0", text, f"{part.name}.sizes"]
    if rule.spans:
        text = quoted(f"{start}have at least one element along its last axis, got shape ")
        yield [f"has_ends({part.name})", text, f"{part.name}.sizes"]
    if words := described(rule):
        got = [f"{wrong}.value()", quoted(" at "), f"{wrong}.place()"]
        yield [f"{wrong}.value_is_right()", *_with_names(f"{start}be {words}", names(spec, rule), part, code), *got]
    if rule.sorted is not None:
        text = f"{start}be {described_order(rule)} along its last axis, got "
        yield [f"{wrong}.order_is_right()", quoted(text), f"{wrong}.value()", quoted(" after "), f"{wrong}.before()",
               quoted(" at "), f"{wrong}.place()"]  # fmt: skip
    if words := described_ends(rule):
        text = f"{start}{words} along its last axis"
        yield [f"{wrong}.end_is_right()", *_with_names(text, names(spec, rule), part, code), f"{wrong}.value()",
               quoted(" at "), f"{wrong}.place()"]  # fmt: skip


def _with_names(text: str, used: Sequence[Name], part: Input, code: SizeCode) -> list[str]:
    """Return the parts of a message: the text, and the number for each name in it."""
    parts: list[str] = []
    separator = " with "
    for name in used:
        parts += [quoted(f"{text}{separator}{name.name} = "), code(name.name)]
        text = "" if name.owner in ("", part.name) else f" as in {name.owner}"
        separator = " and "
    return [*parts, quoted(f"{text}, got ")]


def _limit(limit: Limit, code: SizeCode) -> str:
    if limit is None:
        return "NoLimit{}"
    if not isinstance(limit, str):
        return _number(limit)
    found = code(limit)
    return found.removeprefix("0 ") if found.startswith("0 - ") and " " not in found[4:] else found


def _number(value: float) -> str:
    return f"{value}u" if isinstance(value, int) and value >= 2**63 else literal(value)
