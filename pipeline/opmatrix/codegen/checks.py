"""The checks of the C++ bindings, as KERNEL_CHECK statements: values of attributes, shapes and values of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opmatrix.codegen.cpp import literal, quoted
from opmatrix.codegen.size_checks import size_checks
from opmatrix.codegen.size_code import SIZE_FUNCTIONS, SizeCode
from opmatrix.signature.signature import is_required
from opmatrix.sizes import values
from opmatrix.sizes.rules import axes, checked_axes, owner, resolved_terms, shape_inputs, size_items, sizes_at, sources
from opmatrix.spec import Attribute, AttributeKind, Input, OpSpec, ValueRule


@dataclass(frozen=True, kw_only=True)
class Check:
    """One KERNEL_CHECK, and the statement around it, if any: ``if (x_given)``."""

    arguments: list[str]
    guard: str | None = None


def limits(
    spec: OpSpec, attribute: Attribute, *, variable: str, shown: str, suffix: str, there: str | None = None
) -> Check | None:
    """Return the check of a value, which NaN fails; `shown` is its name in the message, `suffix` a float literal's.
    `there` is the bool that tells whether it is there, if it is optional."""
    many = attribute.kind.endswith("s")
    item = "item" if many else variable
    bounds = [(">=", "at least", attribute.minimum), ("<=", "at most", attribute.maximum)]
    found = [(sign, words, bound) for sign, words, bound in bounds if bound is not None]
    number = int if attribute.kind.startswith("int") else float
    conditions = [f"{item} {sign} {literal(number(bound), suffix)}" for sign, _, bound in found]
    words = [f"{words} {bound:g}" for _, words, bound in found]
    if attribute.allowed is not None:
        allowed: Iterable[Any] = attribute.allowed
        if attribute.kind.startswith("string"):
            equal = [f"equal({item}, {quoted(value)})" for value in allowed]
        else:
            allowed = map(float, allowed) if attribute.kind == "float" else allowed
            equal = [f"{item} == {literal(value, suffix)}" for value in allowed]
        choice = " || ".join(equal)
        conditions.append(f"({choice})" if found else choice)
        words.append("one of " + ", ".join(map(str, attribute.allowed)))
    if not conditions:
        return None
    text = f"{spec.name}: {shown} must {'each be ' if many else 'be '}{' and '.join(words)}, got "
    guard = f"for (const auto item : {variable})" if many else f"if ({there})" if there else None
    arguments = [" && ".join(conditions), quoted(text), item]
    return Check(arguments=arguments, guard=guard)


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
    """Yield the checks of a call's sizes."""
    loops = {i.name: f"for (const Sizes {i.name}_sizes : {i.name})" for i in spec.inputs if not is_required(i)}
    shown = {i.name: f"{i.name}_sizes" if i.name in loops else i.name for i in spec.inputs}
    for check in size_checks(SizeCode(spec=spec, shape=shown.__getitem__, attribute=str)):
        texts = [f"{spec.name}: {check.message[0]}", *check.message[1:]]
        message = [part if n % 2 else quoted(part) for n, part in enumerate(texts)]
        joined = " && ".join(check.conditions)
        guard = " ".join(loops[part.name] for part in check.among if part.name in loops) or None
        for condition in [joined] if len(joined) < 100 else check.conditions:  # one each where the line is too long
            yield Check(arguments=[condition, *message], guard=guard)


_KINDS: Mapping[AttributeKind, str] = {"int": "std::int64_t", "float": "float", "ints": "List<std::int64_t>"}


class ValueCheck:
    """The function that checks one input, and its calls in both bindings."""

    def __init__(self, spec: OpSpec, part: Input, rule: ValueRule) -> None:
        self._spec, self._rule, name = spec, rule, part.name
        self._code = SizeCode(spec=spec, shape=lambda of: f"{of}.sizes" if of == name else of, attribute=str)
        limits = values.limit_expressions(rule)
        used = [term for limit in limits if isinstance(limit, str) for term in resolved_terms(spec, limit)]
        owners = list(dict.fromkeys(owner for term in used for owner in sources(spec, term) if owner != name))
        attributes = [a for a in spec.attributes if a.name in {at for term in used for at in (term.of, term.at)}]
        self.input, self.function = name, f"check_{name}_values"
        self.views = f"{name}_values"  # the variable with the view, or with all views
        # The statement around its call, for an input that may be absent, or is any number of tensors.
        self.loop, view = f"if ({self.views})", f"*{self.views}"
        if part.variadic:
            self.loop, view = f"for (const auto& item : {self.views})", "item"
        elif is_required(part):
            self.loop, view = "", self.views
        self.parameters = [f"const TensorView<const T>& {name}", *(f"Sizes {owner}" for owner in owners)]
        self.parameters += [f"{_KINDS[a.kind]} {a.name}" for a in attributes]
        tensors = [view, *(f"{owner}.sizes()" for owner in owners)]
        self.torch_arguments = [*tensors, *(a.name for a in attributes)]
        self.ort_arguments = [*tensors, *(f"{a.name}_{'.list()' * (a.kind == 'ints')}" for a in attributes)]
        self.wrong = "wrong"  # the variable for the wrong element
        while self.wrong in {name, *owners, *(a.name for a in attributes)}:
            self.wrong += "_"
        low, high = (_limit(limit, self._code) for limit in limits)
        self.divides = any(function in limit for limit in (low, high) for function in SIZE_FUNCTIONS)  # needs sizes.h
        self.find = self._find(low, high)
        self.checks = [*self._checks()]  # the arguments of each KERNEL_CHECK

    def _find(self, low: str, high: str) -> list[str] | None:
        """Return the arguments that find a wrong element, or None where all elements are right."""
        rule, allowed, order = self._rule, "any_value()", "AnyOrder{}"
        if rule.allowed is not None:
            allowed = f"one_of({', '.join(map(_number, rule.allowed))})"
        elif (low, high) != ("NoLimit{}", "NoLimit{}"):
            allowed = f"between({low}, {high})"
        if rule.finite:
            allowed = f"finite({allowed})"
        if rule.sorted is not None:
            order = f"{'Strictly' if rule.unique else ''}{rule.sorted.capitalize()}{{}}"
        if rule.spans:
            return [self.input, allowed, order, f"Ends{{{', '.join(values.ends(rule, (low, high)))}}}"]
        return [self.input, allowed, order] if (allowed, order) != ("any_value()", "AnyOrder{}") else None

    def _checks(self) -> Iterator[list[str]]:
        rule, wrong, start = self._rule, self.wrong, f"{self._spec.name}: {self.input} must "
        place = [quoted(" at "), f"{wrong}.place()"]
        if rule.non_empty:
            text = quoted(f"{start}have at least one element, got shape ")
            yield [f"{self.input}.numel() > 0", text, f"{self.input}.sizes"]
        if rule.spans:
            text = quoted(f"{start}have at least one element along its last axis, got shape ")
            yield [f"has_ends({self.input})", text, f"{self.input}.sizes"]
        if words := values.described(rule):
            yield [f"{wrong}.value_is_right()", *self._with_names(f"{start}be {words}"), f"{wrong}.value()", *place]
        if rule.sorted is not None:
            text = quoted(f"{start}be {values.described_order(rule)} along its last axis, got ")
            after = [quoted(" after "), f"{wrong}.before()"]
            yield [f"{wrong}.order_is_right()", text, f"{wrong}.value()", *after, *place]
        if words := values.described_ends(rule):
            text = f"{start}{words} along its last axis"
            yield [f"{wrong}.end_is_right()", *self._with_names(text), f"{wrong}.value()", *place]

    def _with_names(self, text: str) -> list[str]:
        """Return the parts of a message: the text, and the number for each name in it."""
        parts: list[str] = []
        separator = " with "
        for term in values.limit_terms(self._rule):
            parts += [quoted(f"{text}{separator}{term.key} = "), self._code(term.key)]
            source = owner(self._spec, term)
            text = "" if source in ("", self.input) else f" as in {source}"
            separator = " and "
        return [*parts, quoted(f"{text}, got ")]


def value_checks(spec: OpSpec) -> list[ValueCheck]:
    """Return the checks that bindings make, in the order of the inputs."""
    ruled = [(part, part.values) for part in spec.inputs if part.values is not None]
    return [ValueCheck(spec, part, rule) for part, rule in ruled if rule.checked_by == "binding"]


def _limit(limit: values.Limit, code: SizeCode) -> str:
    if limit is None:
        return "NoLimit{}"
    if not isinstance(limit, str):
        return _number(limit)
    found = code(limit)
    return found.removeprefix("0 ") if found.startswith("0 - ") and " " not in found[4:] else found


def _number(value: float) -> str:
    return f"{value}u" if isinstance(value, int) and value >= 2**63 else literal(value)
