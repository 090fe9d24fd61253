"""The error checks of the C++ bindings on the values of attributes, as KERNEL_CHECK statements.

The error checks of the C++ bindings on the shapes of inputs, as KERNEL_CHECK statements.

The checks of the values of inputs in the C++ bindings: one function for each input with a `ValueRule`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opmatrix.codegen.cpp import SIZE_FUNCTIONS, SizeCode, literal, quoted
from opmatrix.signature.signature import is_required
from opmatrix.sizes.checks import (
    AxisCheck,
    ItemCheck,
    OptionalCheck,
    SameFurther,
    SameShape,
    ShapeCheck,
    TieCheck,
    owner,
    size_checks,
)
from opmatrix.sizes.expressions import Term
from opmatrix.sizes.rules import (
    axes,
    checked_axes,
    has_further,
    resolved_terms,
    shape_inputs,
    size_items,
    sizes_at,
    sources,
)
from opmatrix.sizes.values import (
    Limit,
    Name,
    described,
    described_ends,
    described_order,
    ends,
    limit_expressions,
    names,
)
from opmatrix.spec import Attribute, AttributeKind, Input, OpSpec, ValueRule


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


def shape_parameters(spec: OpSpec) -> list[str]:
    """Return the parameters of the function with the `shape_checks`; an absent input is an empty list."""
    counted = (i for i in spec.inputs if i.name in shape_inputs(spec))
    lists = {"ints": "List<std::int64_t>", "bools": "List<bool>"}
    kinds = {a.name: lists.get(a.kind, "std::int64_t") for a in spec.attributes}
    return [f"{'Sizes' if is_required(i) else 'List<Sizes>'} {i.name}" for i in counted] + [
        f"{kinds[name]} {name}" for name in shape_attributes(spec)
    ]


def shape_attributes(spec: OpSpec) -> list[str]:
    """Return the attributes that the checks need: in sizes of inputs, with items in any size, and naming an axis."""
    used = {
        name
        for part in spec.inputs
        for _, dim in (*axes(part), *sizes_at(part))
        for term in resolved_terms(spec, dim)
        for name in (term.of, term.at)
    }
    used |= {*size_items(spec), *(at for _, at in checked_axes(spec))}
    return [a.name for a in spec.attributes if a.name in used]


def shape_checks(spec: OpSpec) -> Iterator[Check]:
    """Yield the checks of `opmatrix.sizes.checks`."""
    shown = {i.name: i.name if is_required(i) else f"{i.name}_sizes" for i in spec.inputs}
    code = SizeCode(spec=spec, shape=shown.__getitem__, attribute=str)
    for check in size_checks(spec):
        match check:
            case ItemCheck(attribute=name, count=count, exactly=exactly):
                condition = f"{name}.size() {'==' if exactly else '>='} {count}"
                yield Check(
                    arguments=[condition, quoted(f"{spec.name}: {name} must have {check}, got "), f"{name}.size()"]
                )
            case AxisCheck():
                yield _axis(spec, check)
            case SameShape(given=given, other=other):
                yield _same_shape(spec, given, other)
            case SameFurther(given=given, other=other):
                there = code.further_of(other)
                message = _message(spec, given, shown[given.name], [("...", there, other.name)])
                yield Check(arguments=[f"{code.further_of(given)} == {there}", *message], guard=_guard(given))
            case ShapeCheck(given=given):
                conditions = [*_conditions(check, code)]
                message = _message(spec, given, shown[given.name], _origins(spec, given, check.others, code))
                joined = " && ".join(conditions)
                for condition in [joined] if len(joined) < 100 else conditions:  # one each where the line is too long
                    yield Check(arguments=[condition, *message], guard=_guard(given))
            case OptionalCheck(given=given, at=at, dim=dim, names=used, others=others):
                message = _message(spec, given, shown[given.name], _origins(spec, given, used, code))
                guard = " ".join(filter(None, map(_guard, (*others, given))))
                yield Check(arguments=[f"{code.axis(given.name, at)} == {code(dim)}", *message], guard=guard)
            case TieCheck(given=given, at=at, name=name, other=other, axis=axis):
                own = other is given
                names = {**shown, other.name: f"{other.name}[0]"} if own else shown
                there = SizeCode(spec=spec, shape=names.__getitem__, attribute=str).axis(other.name, axis)
                message = _message(spec, given, shown[given.name], [(name, there, other.name)])
                guard = " ".join(filter(None, (_guard(given), None if own else _guard(other))))
                yield Check(arguments=[f"{code.axis(given.name, at)} == {there}", *message], guard=guard)


def _conditions(check: ShapeCheck, code: SizeCode) -> Iterator[str]:
    given = check.given
    if check.rank:
        yield f"{code.shape(given.name)}.rank {'>=' if has_further(given) else '=='} {len(axes(given))}"
    if check.rank_name is not None:
        yield f"{code.shape(given.name)}.rank == {code(check.rank_name)}"
    yield from (f"{code(name)} >= 0" for name in check.positive)
    yield from (f"{code.axis(given.name, at)} == {code(dim)}" for at, dim in check.sizes)


def _axis(spec: OpSpec, check: AxisCheck) -> Check:
    name, at = check.given.name, check.at
    if isinstance(at, int):
        condition = f"{name}.rank > {at}" if at >= 0 else f"{name}.rank >= {-at}"
        return Check(arguments=[condition, quoted(f"{spec.name}: {name} must have an axis {at}, got "), name])
    text = quoted(f"{spec.name}: {at} must be an axis of {name}, which has ")
    condition = f"{at} >= -{name}.rank && {at} < {name}.rank"
    return Check(arguments=[condition, text, f"{name}.rank", quoted(" axes, got "), at])


def _same_shape(spec: OpSpec, given: Input, other: str) -> Check:
    shown = given.name if is_required(given) else f"{given.name}_sizes"
    text = quoted(f"{spec.name}: {given.name} must have the shape of {other}, ")
    return Check(arguments=[f"{shown} == {other}", text, other, quoted(", got "), shown], guard=_guard(given))


def _guard(given: Input) -> str | None:
    """Return the loop over the shapes of an optional or variadic input."""
    return None if is_required(given) else f"for (const Sizes {given.name}_sizes : {given.name})"


def _origins(spec: OpSpec, given: Input, others: Sequence[Term], code: SizeCode) -> list[tuple[str, str, str]]:
    """Return name, value and input of what the sizes are computed from, without what is shown anyway."""
    found = [(term.key, code(term.key), owner(spec, term)) for term in others]
    return [origin for origin in found if origin[2] != given.name]


def _message(spec: OpSpec, given: Input, shown: str, origins: Sequence[tuple[str, str, str]]) -> list[str]:
    text = f"{spec.name}: {given.name} must have {shape_text(given)}"
    parts: list[str] = []
    separator = " with "
    for name, expression, source in origins:
        parts += [quoted(f"{text}{separator}{name} = "), expression]
        text, separator = f" as in {source}" if source else "", " and "
    return [*parts, quoted(f"{text}, got "), shown]


def shape_text(given: Input) -> str:
    """Return the declared shape as messages show it: ``shape (N, 2*C) and rank R``."""
    dims = given.dims if given.dims is not None else ("...",)
    shape = ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "")
    at = "".join(f" and {dim} along {attribute}" for attribute, dim in sizes_at(given))
    return f"shape ({shape})" + (f" and rank {given.rank}" if given.rank else "") + at


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
