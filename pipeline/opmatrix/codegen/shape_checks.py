"""The error checks of the C++ bindings on the shapes of inputs, as KERNEL_CHECK statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmatrix.codegen.cpp import SizeCode, quoted
from opmatrix.codegen.cpp_checks import Check
from opmatrix.declaration.declared_sizes import checked_axes, shape_inputs, size_items
from opmatrix.declaration.size_checks import (
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
from opmatrix.declaration.size_expressions import Term
from opmatrix.declaration.size_rules import axes, has_further, resolved_terms, sizes_at
from opmatrix.declaration.torch_signature import is_required
from opmatrix.spec import Input, OpSpec


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
    """Yield the checks of `opmatrix.declaration.size_checks`."""
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
