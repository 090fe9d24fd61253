"""The checks of a call's sizes in generated code, C++ and Python: each uses only what those before it have checked."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from opmatrix.codegen.size_code import SizeCode
from opmatrix.signature.signature import is_required
from opmatrix.sizes.expressions import Term, subtracts, terms
from opmatrix.sizes.rules import (
    axes,
    checked_axes,
    definitions,
    has_further,
    input_of,
    is_named,
    list_lengths,
    owner,
    owners,
    required,
    resolved,
    size_items,
    sizes_at,
    sources,
)
from opmatrix.spec import Input, OpSpec

_Origin = tuple[str, str, str]  # what a size is computed from: its name, its code, and the input that has it, or ""


@dataclass(frozen=True, kw_only=True)
class SizeCheck:
    """The code of one check: its conditions, and texts and expressions of the message in turns. `part` is the input
    that is wrong then, `among` are all whose tensors it compares, in the order of loops."""

    conditions: list[str]
    message: list[str]
    part: Input | None = None
    among: tuple[Input, ...] = ()


def size_checks(code: SizeCode) -> Iterator[SizeCheck]:
    """Yield the checks, each without the conditions of earlier ones. A size is compared with the first required input
    that has its name."""
    earlier = set[str]()
    for check in _checks(code):
        if conditions := [one for one in check.conditions if one not in earlier]:
            earlier.update(conditions)
            yield replace(check, conditions=conditions)


def _checks(code: SizeCode) -> Iterator[SizeCheck]:
    spec = code.spec
    for name, count in size_items(spec).items():
        exactly, length = name in list_lengths(spec), code.length(name)
        text = f"{name} must have {'' if exactly else 'at least '}{count} item{'s' * (count > 1)}, got "
        condition = code.compared(length, "==" if exactly else ">=", count)
        yield SizeCheck(conditions=[condition], message=[text, length])
    for part in spec.inputs:
        if part.same_as is not None:
            own, there = code.sizes(part.name), code.sizes(part.same_as)
            text = f"{part.name} must have the shape of {part.same_as}, "
            message = [text, code.shown(there), ", got ", code.shown(own)]
            yield SizeCheck(conditions=[code.compared(own, "==", there)], message=message, part=part, among=(part,))
        if part.dims is not None or part.rank is not None:
            yield from _sources(code, part)
            yield _shape(code, part)
        if part.further_as is not None:
            there = code.further_of(input_of(spec, part.further_as))
            condition = code.compared(code.further_of(part), "==", there)
            yield _check(code, part, [condition], [("...", code.shown(there), part.further_as)])
        yield from _axes(code, part)
        for attribute, dim in sizes_at(part):
            used = (Term(key=attribute, kind="name", of=attribute), *_of_others(spec, part, dim))
            yield _check(code, part, [_has_size(code, part, attribute, dim)], _origins(code, part, used))
        if not is_required(part):
            yield from _ties(code, part)


def _sources(code: SizeCode, part: Input) -> Iterator[SizeCheck]:
    """Yield the checks of the rank of other inputs whose sizes the checks of this one read."""
    sizes = (*axes(part), *sizes_at(part))
    used = {name for _, dim in sizes for term in terms(dim) for name in sources(code.spec, term)}
    for other in required(code.spec):
        if other.name in used and other is not part:
            yield _check(code, other, _has_rank(code, other))
            yield from _axes(code, other)


def _shape(code: SizeCode, part: Input) -> SizeCheck:
    """Return the check of rank and sizes of an input's `dims`, and of names that follow from it and may be negative."""
    spec, known = code.spec, definitions(code.spec)
    conditions, equal = _has_rank(code, part), list[str]()
    used: dict[str, Term] = {}
    if part.rank and known[part.rank][0] != f"{part.name}.rank":
        conditions.append(code.compared(code.rank(part.name), "==", code(part.rank)))
        used[part.rank] = Term(key=part.rank, kind="name", of=part.rank)
    for at, dim in axes(part):
        if isinstance(dim, str):
            size = f"{part.name}.shape[{at}]"
            if dim in known and (known[dim][0] == size or _is_optional(spec, dim)):
                continue  # the size of this axis by definition, or no required input has it
            if _of_optional(spec, dim):
                continue
            solved = [
                name
                for name in _names(dim)
                if name in known and name not in owners(spec) and size in {t.key for t in terms(known[name][0])}
            ]
            if solved:
                meant = resolved(spec, solved[0])
                if subtracts(meant):
                    conditions += [code.compared(code(name), ">=", 0) for name in solved]
                if not any(isinstance(node, ast.FloorDiv) for node in ast.walk(meant)):
                    continue  # the size gives the name, so they agree
            used |= {term.key: term for term in _of_others(spec, part, dim)}
        equal.append(_has_size(code, part, at, dim))
    return _check(code, part, conditions + equal, _origins(code, part, used.values()))


def _axes(code: SizeCode, part: Input) -> Iterator[SizeCheck]:
    """Yield the checks that an input has the axes that are read: a number, or the attribute that names one."""
    name, rank = part.name, code.rank(part.name)
    for at in [at for of, at in checked_axes(code.spec) if of == name]:
        if isinstance(at, str):
            axis = code.attribute(at)
            message = [f"{at} must be an axis of {name}, which has ", rank, " axes, got ", axis]
            yield SizeCheck(conditions=[code.is_axis(axis, rank)], message=message)
        else:
            message = [f"{name} must have an axis {at}, got ", code.shown(code.sizes(name))]
            condition = code.compared(rank, ">", at) if at >= 0 else code.compared(rank, ">=", -at)
            yield SizeCheck(conditions=[condition], message=message)


def _ties(code: SizeCode, part: Input) -> Iterator[SizeCheck]:
    """Yield the comparisons of sizes that only inputs have that may be absent: where all of them are present."""
    spec = code.spec
    for at, dim in axes(part):
        if isinstance(dim, str) and (others := _of_optional(spec, dim)):
            among = (*(other for other in others if other is not part), part)
            origins = _origins(code, part, _of_others(spec, part, dim))
            yield _check(code, part, [_has_size(code, part, at, dim)], origins, among=among)
        if not isinstance(dim, str) or not is_named(spec, dim) or not _is_optional(spec, dim):
            continue
        for other in spec.inputs[: spec.inputs.index(part) + 1]:
            for axis, size in axes(other):
                if size == dim and (other is not part or axis < at or part.variadic):
                    is_own = other is part  # then the size is that of its own first tensor
                    there = code.axis(f"{part.name}[0]" if is_own else code.shape(other.name), axis)
                    condition = code.compared(code.axis(code.shape(part.name), at), "==", there)
                    among = (part,) if is_own else (part, other)
                    yield _check(code, part, [condition], [(dim, there, other.name)], among=among)


def _has_rank(code: SizeCode, part: Input) -> list[str]:
    sign = ">=" if has_further(part) else "=="
    return [] if part.dims is None else [code.compared(code.rank(part.name), sign, len(axes(part)))]


def _has_size(code: SizeCode, part: Input, at: int | str, dim: str | int) -> str:
    return code.compared(code.axis(code.shape(part.name), at), "==", code(dim))


def _of_others(spec: OpSpec, part: Input, dim: str | int) -> list[Term]:
    """Return the terms of an expression that do not come from this input."""
    return [term for term in terms(dim) if {*sources(spec, term)} != {part.name}]


def _names(dim: str) -> list[str]:
    return [] if dim.isidentifier() else [term.key for term in terms(dim) if term.kind == "name"]


def _is_optional(spec: OpSpec, name: str) -> bool:
    """Return whether only inputs that may be absent have a size of this name."""
    found = sources(spec, Term(key=name, kind="name", of=name))
    return bool(found) and not {*found} <= {part.name for part in required(spec)}


def _of_optional(spec: OpSpec, dim: str) -> list[Input]:
    """Return the inputs that may be absent and alone have names in an expression."""
    names = {owners(spec)[name][0] for name in _names(dim) if _is_optional(spec, name)}
    return [part for part in spec.inputs if part.name in names]


def _origins(code: SizeCode, part: Input, used: Iterable[Term]) -> list[_Origin]:
    """Return what sizes are computed from, without what is shown anyway."""
    found = [(term.key, code(term.key), owner(code.spec, term)) for term in used]
    return [origin for origin in found if origin[2] != part.name]


def _check(
    code: SizeCode,
    part: Input,
    conditions: list[str],
    origins: Iterable[_Origin] = (),
    *,
    among: tuple[Input, ...] = (),
) -> SizeCheck:
    """Return a check whose message has the declared shape of an input ``shape (N, 2*C) and rank R``, and its own."""
    dims = part.dims if part.dims is not None else ("...",)
    shape = ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "")
    at = "".join(f" and {dim} along {attribute}" for attribute, dim in sizes_at(part))
    text = f"{part.name} must have shape ({shape})" + (f" and rank {part.rank}" if part.rank else "") + at
    separator, message = " with ", list[str]()
    for name, expression, source in origins:
        message += [f"{text}{separator}{name} = ", expression]
        text, separator = f" as in {source}" if source else "", " and "
    message += [f"{text}, got ", code.shown(code.sizes(part.name))]
    return SizeCheck(conditions=conditions, message=message, part=part, among=among or (part,))
