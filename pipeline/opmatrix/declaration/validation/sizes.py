"""Find mistakes in the sizes of a declaration: unknown names, sizes that nothing gives, and wrong expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from opmatrix.declaration.declared_sizes import kernel_names
from opmatrix.declaration.size_expressions import FURTHER, Term, terms, why_no_size
from opmatrix.declaration.size_rules import (
    axes,
    axis_attributes,
    definitions,
    further_input,
    is_positive,
    required,
    size_attributes,
    sizes_at,
    sources,
)
from opmatrix.declaration.validation.mistake import Mistake, not_one_of
from opmatrix.errors import did_you_mean
from opmatrix.spec import Dims, FromKernel, Input, OpSpec, SameAs


def sizes(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes in `Input.dims`, `Input.rank`, `Input.at` and the shape rules of outputs."""
    for index, part in enumerate(spec.inputs):
        field = f"inputs[{index}].dims"
        if (part.dims or ()).count(FURTHER) > 1:
            yield Mistake(field, f"found {part.dims}, allowed: '...' once; nothing says where one ends")
            continue
        if part.rank is not None and not part.rank.isidentifier():
            yield Mistake(f"inputs[{index}].rank", f"found {part.rank!r}, allowed: a name")
        elif part.rank is not None and not _is_given(spec, part.rank) and len(definitions(spec)[part.rank]) > 1:
            why = (
                "which only inputs that may be absent have; allowed: the rank of a required input, or a name of its own"
            )
            yield Mistake(f"inputs[{index}].rank", f"found {part.rank!r}, {why}")
        yield from _input(spec, part, field)
        yield from _at(spec, part, f"inputs[{index}].at")
    for index, output in enumerate(spec.outputs):
        yield from _rule(spec, output.shape, f"outputs[{index}].shape")


def _input(spec: OpSpec, part: Input, field: str) -> Iterator[Mistake]:
    for _, dim in axes(part):
        if isinstance(dim, int) and dim < 0:
            yield Mistake(field, f"found {dim!r}, allowed: a name, a number from 0 on, an expression, or '...'")
        elif isinstance(dim, str) and not dim.isidentifier():
            yield from expression(spec, dim, field, given=True)
        elif isinstance(dim, str) and part not in required(spec) and len(definitions(spec)[dim]) == 1:
            known = [name for name, (one, *_) in definitions(spec).items() if name != dim]
            if near := did_you_mean(dim, known):
                yield Mistake(field, f"found {dim!r}, allowed: sizes that other inputs have: {', '.join(known)}{near}")


def _at(spec: OpSpec, part: Input, field: str) -> Iterator[Mistake]:
    if part.at and part not in required(spec):
        yield Mistake(field, f"found {dict(part.at)}, allowed: only for a required input")
    for attribute, dim in sizes_at(part):
        if attribute not in axis_attributes(spec):
            yield _no_axis(spec, field, attribute)
        if isinstance(dim, str):
            yield from expression(spec, dim, field, given=True)
        elif dim < 0:
            yield Mistake(field, f"found {dim!r}, allowed: a name, a number from 0 on, or an expression")


def _rule(spec: OpSpec, rule: SameAs | Dims | FromKernel, path: str) -> Iterator[Mistake]:
    match rule:
        case SameAs(input=name, replace=replace):
            names = [part.name for part in required(spec)]
            if name not in names:
                yield not_one_of(f"{path}.input", name, names)
            for key, dim in replace.items():
                field = f"{path}.replace[{key!r}]"
                if isinstance(key, str) and key not in axis_attributes(spec):
                    yield _no_axis(spec, field, key)
                if dim is not None:
                    yield from expression(spec, dim, field)
        case Dims(dims=dims):
            if dims.count(FURTHER) > 1 or (FURTHER in dims and further_input(spec) is None):
                why = "once" if dims.count(FURTHER) > 1 else "where a required input has it in its dims"
                yield Mistake(f"{path}.dims", f"found {dims}, allowed: '...' {why}")
            for dim in dims:
                yield from () if dim == FURTHER else expression(spec, dim, f"{path}.dims")
        case FromKernel(rank=rank, dims=dims):
            if (rank is None) == (dims is None):
                yield Mistake(path, f"found rank={rank} and dims={dims}, allowed: one of both")
            elif rank is not None and rank < 0:
                yield Mistake(f"{path}.rank", f"found {rank}, allowed: a number from 0 on")
            own = kernel_names(spec, rule)
            for dim in (d for d in dims or () if d not in own):
                if dim == FURTHER:
                    yield Mistake(f"{path}.dims", f"found {dims}, allowed: a size for each axis, without '...'")
                elif used := [t.key for t in _terms(dim) if t.key in own]:
                    yield Mistake(f"{path}.dims", f"found {dim!r}: the kernel decides {used[0]}; allowed: alone")
                else:
                    yield from expression(spec, dim, f"{path}.dims")


def _terms(dim: str | int) -> Sequence[Term]:
    try:
        return terms(dim)
    except SyntaxError:
        return ()


def expression(spec: OpSpec, dim: str | int, field: str, *, given: bool = False) -> Iterator[Mistake]:
    """Yield the mistakes of one size expression; `given` is whether it is the size of an input."""
    try:
        found: Sequence[Term] = terms(dim)
    except SyntaxError:
        words = re.findall(r"[^\W\d]\w*", str(dim))
        found = [Term(key=word, kind="name", of=word) for word in words]
    unknown = [mistake for term in found if (mistake := _term(spec, term, dim, field, given=given)) is not None]
    yield from unknown
    if not unknown and (why := why_no_size(dim, is_positive(spec))):
        yield Mistake(field, f"found {dim!r}: {why}")


def _term(spec: OpSpec, term: Term, dim: str | int, field: str, *, given: bool) -> Mistake | None:
    """Return what is wrong with a term of an expression, or None."""
    names = [part.name for part in required(spec)]
    attributes = {a.name: a for a in spec.attributes}
    match term.kind:
        case "product":
            if further_input(spec) is None:
                return Mistake(field, f"found {dim!r}, allowed: prod(...) where a required input has '...' in its dims")
        case "rank" | "size" if term.of not in names:
            return not_one_of(field, term.of, names)
        case "size" if isinstance(term.at, str) and term.at not in axis_attributes(spec):
            return _no_axis(spec, field, term.at)
        case "item":
            attribute = size_attributes(spec).get(term.of)
            if attribute is None or attribute.kind != "ints":
                allowed = "an element of an attribute of kind ints that ONNX has, with minimum= from 0 on: it is a size"
                near = did_you_mean(term.of, attributes)
                return Mistake(field, f"found {term.key!r}, allowed: {allowed}{near}")
            if isinstance(attribute.default, tuple) and len(attribute.default) <= int(term.at):
                items = f"a default of {int(term.at) + 1} or more elements of {term.of!r}, or none"
                return Mistake(field, f"found {term.key!r}, allowed with {items}: it is {attribute.default}")
        case "name":
            return _name(spec, term, dim, field, given=given)
    return None


def _name(spec: OpSpec, term: Term, dim: str | int, field: str, *, given: bool) -> Mistake | None:
    known, sized = definitions(spec), size_attributes(spec)
    if term.key in sized and sized[term.key].kind == "int":
        return None
    usable = [name for name in known if _is_given(spec, name)]
    if term.key in usable:
        return None
    if term.key in {a.name for a in spec.attributes} and term.key not in known:
        allowed = "one of kind int that ONNX has, with minimum= from 0 on: it is a size"
        return Mistake(field, f"found {term.key!r}, an attribute, allowed: {allowed}")
    if given and term.key not in known and not did_you_mean(term.key, [*usable, *sized]):
        remedy = "Declare it as the size of an axis of a required input, or as an int attribute with minimum= from 0 on"
        return Mistake(field, f"found {term.key!r} in {dim!r}, and nothing gives its value. {remedy}")
    listed = ", ".join([*usable, *(name for name, a in sized.items() if a.kind == "int")])
    allowed = listed or "no name, since they have none"
    near = did_you_mean(term.key, [*usable, *sized])
    return Mistake(field, f"found {term.key!r}, allowed: sizes that required inputs have: {allowed}{near}")


def _is_given(spec: OpSpec, name: str) -> bool:
    """Return whether required inputs give a name its value."""
    return {*sources(spec, Term(key=name, kind="name", of=name))} <= {part.name for part in required(spec)}


def _no_axis(spec: OpSpec, field: str, name: str) -> Mistake:
    known = [*axis_attributes(spec)]
    listed = ", ".join(known) or "none is declared"
    return Mistake(field, f"found {name!r}, allowed: a number, or an attribute of kind int that names the axis: "
                   f"{listed}{did_you_mean(name, known)}")  # fmt: skip
