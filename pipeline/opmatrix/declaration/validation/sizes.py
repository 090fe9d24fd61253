"""Find mistakes in the sizes of a declaration: unknown names, sizes that nothing gives, and wrong expressions."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Sequence

from opmatrix.basics.errors import did_you_mean
from opmatrix.declaration.validation.fields import Mistake, by_path, not_one_of
from opmatrix.signature.signature import is_required
from opmatrix.sizes.expressions import FURTHER, GREATEST, LONGEST, Term, parse, term_of, terms, why_no_size
from opmatrix.sizes.rules import (
    axes,
    axis_attributes,
    definitions,
    fixed_rank,
    further_input,
    is_named,
    is_positive,
    kernel_names,
    owners,
    required,
    size_attributes,
    sizes_at,
    sources,
)
from opmatrix.sizes.variadic import has_own_shapes
from opmatrix.spec import Dims, FromKernel, Input, OpSpec, SameAs

SHORT = 2  # letters of a name that resembles others by chance


def sizes(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes in `Input.dims`, `Input.rank`, `Input.at` and the shape rules of outputs."""
    for index, (path, part) in enumerate(by_path("inputs", spec.inputs)):
        if (part.dims or ()).count(FURTHER) > 1:
            yield Mistake(f"{path}.dims", f"found {part.dims}, allowed: '...' once; it is unknown where one ends")
            continue
        if part.rank is not None and (why := _why_no_name(spec, part.rank, rank=True)):
            yield Mistake(f"{path}.rank", f"found {part.rank!r}, {why}")
        elif part.rank is not None and not _is_given(spec, part.rank) and len(definitions(spec)[part.rank]) > 1:
            yield Mistake(f"{path}.rank", f"found {part.rank!r}, which only inputs that may be absent have; allowed: "
                          "the rank of a required input, or a name of its own")  # fmt: skip
        yield from _shared(part, spec.inputs[:index], f"{path}.further_as")
        yield from _input(spec, part, f"{path}.dims")
        yield from _at(spec, part, f"{path}.at")
    yield from _ranks(spec)
    yield from _circles(spec)
    for path, output in by_path("outputs", spec.outputs):
        if not (has_own_shapes(output) and any(i.variadic and i.name == output.variadic for i in spec.inputs)):
            yield from _rule(spec, output.shape, f"{path}.shape")


def _shared(part: Input, earlier: Sequence[Input], field: str) -> Iterator[Mistake]:
    """Yield what is wrong with the input that shares the sizes of "..."."""
    if part.further_as is None:
        return
    if FURTHER not in (part.dims or ()):
        yield Mistake(field, f"found {part.further_as!r} at dims={part.dims}, allowed: where dims has '...'")
    before = [other.name for other in earlier if is_required(other) and FURTHER in (other.dims or ())]
    if part.further_as not in before:
        yield not_one_of(field, part.further_as, before or ["nothing: no required input before has '...'"])


def _ranks(spec: OpSpec) -> Iterator[Mistake]:
    """Yield ranks of one name that differ in every call."""
    fixed: dict[str, tuple[int, str]] = {}
    for path, part in by_path("inputs", spec.inputs):
        if part.rank is None or (rank := fixed_rank(part)) is None:
            continue
        first, name = fixed.setdefault(part.rank, (rank, part.name))
        if rank != first:
            other = f"{part.rank!r} is the rank {first} of {name!r}"
            yield Mistake(f"{path}.rank", f"found {part.rank!r} for the rank {rank}, and {other}; allowed: another "
                          "name, or as many dims")  # fmt: skip


def _fixed_rank(spec: OpSpec, name: str) -> int | None:
    return next((fixed_rank(part) for part in spec.inputs if part.name == name), None)


def _circles(spec: OpSpec) -> Iterator[Mistake]:
    """Yield inputs whose shapes are computed from each other, or from themselves."""
    needs = {part.name: {*_needs(spec, part)} for part in spec.inputs}
    while ready := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in ready:
            del needs[name]
    if names := [name for name in needs if any(name in others for others in needs.values())]:
        index = next(n for n, part in enumerate(spec.inputs) if part.name == names[0])
        what = f"a size of {names[0]!r} is computed from its own shape"
        if len(names) > 1:
            what = f"the shapes of {' and '.join(map(repr, names))} are computed from each other"
        allowed = "a name for one size, such as 'K', from which the others are computed"
        yield Mistake(f"inputs[{index}].dims", f"found {spec.inputs[index].dims}: {what}; allowed: {allowed}")


def _needs(spec: OpSpec, part: Input) -> Iterator[str]:
    """Yield the inputs from whose shapes that of an input is computed; a name of a size is of no single input."""
    before = [other.name for other in spec.inputs[: spec.inputs.index(part)]]
    yield from (name for name in (part.same_as, part.further_as) if name in before)
    ranks = {other.rank: other.name for other in reversed(spec.inputs)}
    for term in (term for _, dim in axes(part) for term in _terms(dim)):
        if term.kind in ("size", "rank", "product"):
            yield from sources(spec, term)
        elif term.key in ranks:
            yield ranks[term.key]


def _input(spec: OpSpec, part: Input, field: str) -> Iterator[Mistake]:
    names = definitions(spec)
    for _, dim in axes(part):
        if isinstance(dim, int) and not 0 <= dim <= GREATEST:
            allowed = f"a name, a number from 0 to {GREATEST}, an expression, or '...'"
            yield Mistake(field, f"found {dim!r}, allowed: {allowed}")
        elif isinstance(dim, str) and not dim.isidentifier():
            yield from expression(spec, dim, field, of_input=True, also=_of_optional_inputs(spec, part))
        elif isinstance(dim, str) and (why := _why_no_name(spec, dim)):
            yield Mistake(field, f"found {dim!r}, {why}")
        elif isinstance(dim, str) and is_named(spec, dim) and not is_required(part) and len(names[dim]) == 1:
            known = [name for name in names if name != dim]
            if near := did_you_mean(dim, known):
                yield Mistake(field, f"found {dim!r}, allowed: sizes that other inputs have: {', '.join(known)}{near}")


def _at(spec: OpSpec, part: Input, field: str) -> Iterator[Mistake]:
    if part.at and not is_required(part):
        yield Mistake(field, f"found {dict(part.at)}, allowed: only for a required input")
    for attribute, dim in sizes_at(part):
        if attribute not in axis_attributes(spec):
            yield _no_axis(spec, field, attribute)
        if isinstance(dim, str):
            yield from expression(spec, dim, field, of_input=True)
        elif dim < 0:
            yield Mistake(field, f"found {dim!r}, allowed: a name, a number from 0 on, or an expression")


def _rule(spec: OpSpec, rule: SameAs | Dims | FromKernel, path: str) -> Iterator[Mistake]:
    match rule:
        case SameAs(input=str()):
            yield from _replaced(spec, rule, path)
        case Dims(dims=dims):
            if dims.count(FURTHER) > 1 or (FURTHER in dims and further_input(spec) is None):
                why = "once" if dims.count(FURTHER) > 1 else "where a required input has it in its dims"
                yield Mistake(f"{path}.dims", f"found {dims}, allowed: '...' {why}")
            for dim in dims:
                yield from () if dim == FURTHER else expression(spec, dim, f"{path}.dims")
        case FromKernel(rank=rank, dims=dims, input=name, replace=replace):
            if sum(one is not None for one in (rank, dims, name)) != 1:
                also = "" if name is None else f", input={name!r}"
                yield Mistake(path, f"found rank={rank}, dims={dims}{also}, allowed: one of rank, dims and input")
            elif rank is not None and rank < 0:
                yield Mistake(f"{path}.rank", f"found {rank}, allowed: a number from 0 on")
            if name is None and replace:
                yield Mistake(f"{path}.replace", f"found {dict(replace)}, allowed: with input, which has these axes")
            own = kernel_names(spec, rule)
            if name is not None and not own:
                allowed = "the name of a size that the kernel decides as the size of an axis, such as {0: 'S'}"
                yield Mistake(f"{path}.replace", f"found {dict(replace)}, allowed: {allowed}; or SameAs, if it "
                              "decides none")  # fmt: skip
            field = f"{path}.dims" if name is None else f"{path}.replace"
            known = [*definitions(spec), *size_attributes(spec)]
            for dim in own:  # a name that is misspelt would be one more size that the kernel decides
                equal = [name for name in known if name.casefold() == dim.casefold()]
                near = f"; did you mean {equal[0]!r}?" if equal else ""
                if near := near or did_you_mean(dim, known if len(dim) > SHORT else []):
                    yield Mistake(field, f"found {dim!r}, allowed: {', '.join(known)}, or a name that "
                                  f"resembles none, for a size that the kernel decides{near}")  # fmt: skip
            for dim in (d for d in dims or () if d not in own):
                if dim == FURTHER:
                    yield Mistake(f"{path}.dims", f"found {dims}, allowed: a size for each axis, without '...'")
                else:
                    yield from _beside(spec, dim, own, f"{path}.dims")
            yield from _replaced(spec, rule, path)


def _replaced(spec: OpSpec, rule: SameAs | FromKernel, path: str) -> Iterator[Mistake]:
    """Yield the mistakes of an output that has the shape of an input with other axes."""
    if (name := rule.input) is None:
        return
    names = [part.name for part in required(spec)]
    if name not in names:
        yield not_one_of(f"{path}.input", name, names)
    rank, seen, own = _fixed_rank(spec, name), set[int](), kernel_names(spec, rule)
    for key, dim in rule.replace.items():
        field = f"{path}.replace[{key!r}]"
        if isinstance(key, int) and rank is not None:
            if not -rank <= key < rank:
                yield Mistake(field, f"found {key}, allowed: an axis of {name!r}, {-rank} to {rank - 1}")
            elif key % rank in seen:
                yield Mistake(field, f"found {key}, which another key names too, allowed: each axis once")
            seen.add(key % max(rank, 1))
        if isinstance(key, str) and key not in axis_attributes(spec):
            yield _no_axis(spec, field, key)
        if dim is not None and dim not in own:
            yield from _beside(spec, dim, own, field)


def _beside(spec: OpSpec, dim: str | int, own: Sequence[str], field: str) -> Iterator[Mistake]:
    """Yield the mistakes of a size in a rule where the kernel decides its `own`."""
    if used := [term.key for term in _terms(dim) if term.key in own]:
        yield Mistake(field, f"found {dim!r}: the kernel decides {used[0]}; allowed: alone")
    else:
        yield from expression(spec, dim, field)


def _terms(dim: str | int) -> Sequence[Term]:
    try:
        return terms(dim)
    except SyntaxError:
        return ()


def _of_optional_inputs(spec: OpSpec, part: Input) -> Sequence[str]:
    """Return the names of sizes that an input that may be absent can use although no required input has them: those of
    inputs before it, and its own."""
    if is_required(part):
        return ()
    before = [other.name for other in spec.inputs[: spec.inputs.index(part) + 1]]
    return [name for name, (owner, _) in owners(spec).items() if owner in before and not _is_given(spec, name)]


def expression(
    spec: OpSpec, dim: str | int, field: str, *, of_input: bool = False, also: Sequence[str] = ()
) -> Iterator[Mistake]:
    """Yield the mistakes of one size expression; `of_input` is whether it is the size of an input, and `also` are names
    that it can use besides those that required inputs have."""
    if len(str(dim)) > LONGEST:
        allowed = f"an expression of at most {LONGEST} characters"
        yield Mistake(field, f"found {str(dim)[:40]!r} and so on, allowed: {allowed}")
        return
    try:
        found: Sequence[Term] = terms(dim)
        if called := _called(dim):
            allowed = "names of sizes, whole numbers, and + - * // of them, and prod(...)"
            yield Mistake(field, f"found {dim!r}: it calls {called!r}, allowed: {allowed}")
            return
    except SyntaxError:
        words = re.findall(r"[^\W\d]\w*", str(dim))
        found = [Term(key=word, kind="name", of=word) for word in words]
    checked = [term for term in found if term.key not in also]
    unknown = [mistake for term in checked if (mistake := _term(spec, term, dim, field, of_input=of_input)) is not None]
    yield from unknown
    if not unknown and (why := why_no_size(dim, is_positive(spec))):
        yield Mistake(field, f"found {dim!r}: {why}")


def _called(dim: str | int) -> str | None:
    """Return a function that an expression calls, other than prod(...); none is known."""
    inside = (node for node in ast.walk(parse(dim)) if isinstance(node, ast.Call) and term_of(node) is None)
    return next((ast.unparse(node.func) for node in inside), None)


def _term(spec: OpSpec, term: Term, dim: str | int, field: str, *, of_input: bool) -> Mistake | None:
    names = [part.name for part in required(spec)]
    attributes = {a.name: a for a in spec.attributes}
    rank = _fixed_rank(spec, term.of) if term.kind == "size" and isinstance(term.at, int) else None
    match term.kind:
        case "product":
            if further_input(spec) is None:
                return Mistake(field, f"found {dim!r}, allowed: prod(...) where a required input has '...' in its dims")
        case "rank" | "size" if term.of not in names:
            return not_one_of(field, term.of, names)
        case "size" if isinstance(term.at, str) and term.at not in axis_attributes(spec):
            return _no_axis(spec, field, term.at)
        case "size" if rank is not None and not -rank <= int(term.at) < rank:
            return Mistake(field, f"found {term.key!r}, allowed: an axis of {term.of!r}, {-rank} to {rank - 1}")
        case "item":
            attribute = size_attributes(spec).get(term.of)
            if attribute is None or attribute.kind != "ints":
                allowed = "an element of an attribute of kind ints that ONNX has, not optional, with minimum= from 0 on"
                near = did_you_mean(term.of, attributes)
                return Mistake(field, f"found {term.key!r}, allowed: {allowed}{near}")
            if isinstance(attribute.default, tuple) and len(attribute.default) <= int(term.at):
                items = f"a default of {int(term.at) + 1} or more elements of {term.of!r}, or none"
                return Mistake(field, f"found {term.key!r}, allowed with {items}: it is {attribute.default}")
        case "name":
            return _name(spec, term, dim, field, of_input=of_input)
    return None


def _name(spec: OpSpec, term: Term, dim: str | int, field: str, *, of_input: bool) -> Mistake | None:
    known, sized = definitions(spec), size_attributes(spec)
    numbers = [name for name, attribute in sized.items() if attribute.kind == "int"]
    usable = [name for name in known if _is_given(spec, name)]
    if term.key in (*numbers, *usable):
        return None
    if term.key in {a.name for a in spec.attributes} and term.key not in known:
        allowed = "one of kind int that ONNX has, not optional, with minimum= or all of allowed= from 0 on"
        return Mistake(field, f"found {term.key!r}, an attribute, allowed: {allowed}: it is a size")
    if of_input and term.key not in known and not did_you_mean(term.key, [*usable, *sized]):
        remedy = "Declare it as the size of an axis of a required input, or as an int attribute with minimum= from 0 on"
        return Mistake(field, f"found {term.key!r} in {dim!r}, and nothing gives its value. {remedy}")
    allowed = ", ".join([*usable, *numbers]) or "no name, since they have none"
    near = did_you_mean(term.key, [*usable, *sized])
    return Mistake(field, f"found {term.key!r}, allowed: sizes that required inputs have: {allowed}{near}")


def _why_no_name(spec: OpSpec, name: str, *, rank: bool = False) -> str | None:
    """Return why a name can be none of a size or a rank, or None."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        return "allowed: a name of letters, digits and _ that is not a keyword of Python"
    attribute = next((a for a in spec.attributes if a.name == name and a.kind in ("int", "ints")), None)
    if attribute is None or (not rank and attribute.kind == "int" and name in size_attributes(spec)):
        return None
    if rank:
        return "also an attribute, allowed: another name"
    if attribute.kind == "ints":
        return f"also an attribute, allowed: one of its elements, such as '{name}[0]', or another name"
    return "also an attribute, allowed: one that ONNX has, with minimum= from 0 on, for its value; or another name"


def _is_given(spec: OpSpec, name: str) -> bool:
    """Return whether required inputs give a name its value."""
    return {*sources(spec, Term(key=name, kind="name", of=name))} <= {part.name for part in required(spec)}


def _no_axis(spec: OpSpec, field: str, name: str) -> Mistake:
    known = axis_attributes(spec)
    return Mistake(field, f"found {name!r}, allowed: a number, or an attribute of kind int that names the axis: "
                   f"{', '.join(known) or 'none is declared'}{did_you_mean(name, known)}")  # fmt: skip
