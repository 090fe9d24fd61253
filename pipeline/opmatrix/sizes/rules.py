"""What the `dims` of a declaration mean: which axis is which size, where each name comes from, what the kernel decides.

All users of a declaration's sizes ask this module: error checks of the bindings, shape inference, cases, drawn inputs.
`known` computes sizes of one call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TypeVar

from opmatrix.signature.parser import length
from opmatrix.signature.signature import is_required, torch_arguments, written_schema
from opmatrix.sizes.expressions import FURTHER, Term, replace_terms, solve, terms, why_no_size
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, SameAs

K = TypeVar("K")
T = TypeVar("T")


def once(function: Callable[[K], T]) -> Callable[[K], T]:
    """Keep the result for the last declaration, by identity: each drawn size asks again, and an OpSpec has no hash."""
    last: list[tuple[K, T]] = []

    @wraps(function)
    def remembered(spec: K) -> T:
        if not last or last[0][0] is not spec:
            last[:] = [(spec, function(spec))]
        return last[0][1]

    return remembered


def axes(part: Input) -> list[tuple[int, str | int]]:
    """Return the axes that `Input.dims` describes, with their sizes; those behind "..." count from the back."""
    dims = part.dims or ()
    split = dims.index(FURTHER) if FURTHER in dims else len(dims)
    return [(at if at < split else at - len(dims), dim) for at, dim in enumerate(dims) if at != split]


def sizes_at(part: Input) -> list[tuple[str, str | int]]:
    """Return the attributes that name axes of `Input.at`, with the sizes of these axes."""
    return [*(part.at or {}).items()]


def around(part: Input) -> tuple[int, int]:
    """Return how many axes are before and behind "..."; an input without `dims` has only further axes."""
    dims = part.dims if part.dims is not None else (FURTHER,)
    split = dims.index(FURTHER)
    return split, len(dims) - split - 1


def has_further(part: Input) -> bool:
    return part.dims is None or FURTHER in part.dims


def fixed_rank(part: Input) -> int | None:
    """Return the number of axes of an input, if its `dims` say it."""
    return None if has_further(part) else len(part.dims or ())


def input_of(spec: OpSpec, name: str | None) -> Input:
    """Return the input of a name that the declaration has."""
    return next(part for part in spec.inputs if part.name == name)


def declared_sizes(spec: OpSpec, part: Input) -> Sequence[str | int]:
    """Return the declared sizes of an input or of that whose shape it has, "..." for one of any shape."""
    while part.same_as is not None:
        part = input_of(spec, part.same_as)
    return (FURTHER,) if part.dims is None else part.dims


def leader(spec: OpSpec, part: Input) -> str:
    """Return the input whose sizes of "..." an input has, itself where it is the first."""
    while shared := part.same_as or part.further_as:
        part = input_of(spec, shared)
    return part.name


def required(spec: OpSpec) -> list[Input]:
    return [part for part in spec.inputs if is_required(part)]


def further_input(spec: OpSpec) -> Input | None:
    """Return the input whose "..." an output and ``prod(...)`` mean: the first required one whose `dims` has it."""
    return next((part for part in required(spec) if FURTHER in (part.dims or ())), None)


@once
def size_attributes(spec: OpSpec) -> Mapping[str, Attribute]:
    """Return the attributes that an expression can name: ints and lists of ints >= 0 that ONNX has."""
    return {
        a.name: a
        for a in spec.attributes
        if a.kind in ("int", "ints") and not (a.torch_only or a.optional) and (low := least(a)) is not None and low >= 0
    }


def least(attribute: Attribute) -> float | None:
    """Return the smallest value that an int may have, by its `minimum` or its `allowed` values; None: no limit."""
    if attribute.minimum is None and attribute.kind == "int" and attribute.allowed:
        return min((value for value in attribute.allowed if isinstance(value, int)), default=None)
    return attribute.minimum


def is_named(spec: OpSpec, dim: str | int) -> bool:
    """Return whether a size of an input is a name of its own, not a constant, an expression or an attribute."""
    return isinstance(dim, str) and dim.isidentifier() and dim not in size_attributes(spec)


def axis_attributes(spec: OpSpec) -> dict[str, Attribute]:
    """Return the attributes that can name an axis: ints of the node."""
    return {a.name: a for a in spec.attributes if a.kind == "int" and not (a.torch_only or a.optional)}


def is_positive(spec: OpSpec) -> Callable[[Term], bool]:
    """Return a function: whether a term is an attribute, or an item of one, that is 1 or more."""
    known = {name for name, a in size_attributes(spec).items() if (least(a) or 0) >= 1}
    return lambda term: term.kind in ("name", "item") and term.of in known


@once
def definitions(spec: OpSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, for each name of a size or a rank, the expressions that have its value, required inputs first.

    A name that is nowhere the whole size of an axis follows from an expression: N of "N + 1" is ``x.shape[0] - 1``.
    """
    found: dict[str, list[str]] = {}
    for part in sorted(spec.inputs, key=lambda part: not is_required(part)):
        if part.rank is not None:
            found.setdefault(part.rank, []).append(f"{part.name}.rank")
        for at, dim in axes(part):
            if is_named(spec, dim):
                found.setdefault(str(dim), []).append(f"{part.name}.shape[{at}]")
    declared, positive, before = {a.name for a in spec.attributes}, is_positive(spec), -1
    while len(found) > before:
        before = len(found)
        for part in required(spec):
            for at, dim in axes(part):
                if isinstance(dim, int) or dim.isidentifier() or why_no_size(dim, positive):
                    continue
                names = [t.key for t in terms(dim) if t.kind == "name" and t.key not in declared | {*found}]
                value = solve(dim, names[0], f"{part.name}.shape[{at}]", positive) if len(names) == 1 else None
                if value is not None:
                    found[names[0]] = [value]
    return {name: tuple(values) for name, values in found.items()}


def resolved_terms(spec: OpSpec, expression: str | int) -> tuple[Term, ...]:
    """Return the terms of an expression without names of sizes: of shapes, ranks and attributes alone."""
    return terms(ast.unparse(resolved(spec, expression)))


def owners(spec: OpSpec) -> dict[str, tuple[str, int]]:
    """Return, for each name that is the whole size of an axis, the first input and axis of that size."""
    places: dict[str, tuple[str, int]] = {}
    for part in sorted(spec.inputs, key=lambda part: not is_required(part)):
        for at, dim in axes(part):
            if is_named(spec, dim):
                places.setdefault(str(dim), (part.name, at))
    return places


def sources(spec: OpSpec, term: Term) -> list[str]:
    """Return the names of the inputs from whose shapes a term is computed."""
    if term.kind == "product":
        part = further_input(spec)
        return [] if part is None else [part.name]
    if term.kind in ("size", "rank"):
        return [term.of]
    found = definitions(spec).get(term.key) if term.kind == "name" else None
    return [] if found is None else [name for inner in terms(found[0]) for name in sources(spec, inner)]


def owner(spec: OpSpec, term: Term) -> str:
    """Return the input that a term is computed from, as messages name it; "" for an attribute."""
    return next(iter(sources(spec, term)), "")


def code(spec: OpSpec, expression: str | int, leaf: Callable[[Term], str]) -> ast.expr:
    """Return an expression in which each name of a size is replaced with its definition, and each other term with the
    code that `leaf` has for it."""
    known = definitions(spec)

    def replace(term: Term) -> ast.expr:
        if term.kind == "name" and term.key in known:
            return replace_terms(known[term.key][0], replace)
        return ast.parse(leaf(term), mode="eval").body

    return replace_terms(expression, replace)


def resolved(spec: OpSpec, expression: str | int) -> ast.expr:
    """Return an expression without names of sizes: of shapes, ranks and attributes alone."""
    return code(spec, expression, lambda term: term.key)


def further(part: Input, shape: Sequence[T]) -> list[T]:
    """Return the sizes of "..." in a shape of an input."""
    front, back = around(part)
    return list(shape[front : len(shape) - back])


def kernel_dims(spec: OpSpec, rule: Dims | FromKernel) -> list[str | int | None]:
    """Return the known sizes of an output whose kernel decides the others, which are None; without those of `input`."""
    if rule.dims is None:
        return [None] * (rule.rank or 0)
    names = kernel_names(spec, rule)
    return [None if dim in names else dim for dim in rule.dims]


def kernel_names(spec: OpSpec, rule: SameAs | Dims | FromKernel) -> list[str]:
    """Return the names of sizes that only the kernel knows."""
    if not isinstance(rule, FromKernel):
        return []
    known = {*definitions(spec), *size_attributes(spec)}
    dims = (*(rule.dims or ()), *rule.replace.values())
    return [dim for dim in dims if isinstance(dim, str) and dim.isidentifier() and dim not in known]


def decided_sizes(spec: OpSpec) -> list[str]:
    """Return the names of sizes that only the kernel knows, of all outputs."""
    return [*dict.fromkeys(name for output in spec.outputs for name in kernel_names(spec, output.shape))]


def expressions(spec: OpSpec) -> Iterator[str | int]:
    """Yield every size of the declaration's shapes but "..."."""
    for part in spec.inputs:
        yield from (dim for _, dim in (*axes(part), *sizes_at(part)))
    for output in spec.outputs:
        yield from output_expressions(spec, output.shape)


def output_expressions(spec: OpSpec, rule: SameAs | Dims | FromKernel) -> list[str | int]:
    """Return the sizes of a shape rule but "...", removed ones and those that only the kernel knows."""
    dims = [] if isinstance(rule, SameAs) else kernel_dims(spec, rule)
    decided, changed = kernel_names(spec, rule), [] if isinstance(rule, Dims) else rule.replace.values()
    return [dim for dim in (*dims, *changed) if dim is not None and dim not in (FURTHER, *decided)]


def limits(spec: OpSpec) -> Iterator[str]:
    """Yield the expressions in rules of values, which bindings compute with the same terms."""
    for rule in (part.values for part in spec.inputs if part.values is not None):
        yield from (e for e in (rule.minimum, rule.maximum, rule.index_into) if isinstance(e, str))


def computes(spec: OpSpec) -> bool:
    """Return whether a size of an output is not just one of an input, a number or the kernel's."""
    replaced = any(isinstance(o.shape, SameAs | FromKernel) and o.shape.replace for o in spec.outputs)
    partly = any(isinstance(o.shape, FromKernel) and o.shape.dims is not None for o in spec.outputs)
    further = any(isinstance(o.shape, Dims) and FURTHER in o.shape.dims for o in spec.outputs)
    names = owners(spec)
    return replaced or partly or further or any(isinstance(e, str) and e not in names for e in expressions(spec))


def divisors(spec: OpSpec) -> list[Attribute]:
    """Return the attributes that a size is divided by."""
    found = {
        term.of
        for one in expressions(spec)
        for node in ast.walk(resolved(spec, one))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        for term in terms(ast.unparse(node.right))
    }
    return [a for a in spec.attributes if a.name in found]


@once
def list_lengths(spec: OpSpec) -> Mapping[str, int]:
    """Return how many items attributes have in a written torch schema, such as 2 for ``int[2]``."""
    arguments = torch_arguments(spec) if written_schema(spec) else ()
    found = {a.source.name: length(a.type) for a in arguments if isinstance(a.source, Attribute)}
    return {name: count for name, count in found.items() if count is not None}


def size_items(spec: OpSpec) -> dict[str, int]:
    """Return how many items each list must have: for the expressions that use it, or in a written torch schema."""
    lengths = {**list_lengths(spec)}
    for term in (term for one in (*expressions(spec), *limits(spec)) for term in terms(one)):
        if term.kind == "item":
            lengths[term.of] = max(lengths.get(term.of, 0), int(term.at) + 1)
    return lengths


@once
def checked_axes(spec: OpSpec) -> list[tuple[str, int | str]]:
    """Return each input with an axis that a call must have: a number, or the attribute that names it."""
    found: dict[tuple[str, int | str], None] = {}
    for term in (term for one in (*expressions(spec), *limits(spec)) for term in terms(one)):
        if term.kind == "size":
            found.setdefault((term.of, term.at))
    for part in spec.inputs:
        found |= dict.fromkeys((part.name, attribute) for attribute, _ in sizes_at(part))
    for output in spec.outputs:
        if isinstance(output.shape, SameAs | FromKernel) and output.shape.input is not None:
            found |= dict.fromkeys((output.shape.input, axis) for axis in output.shape.replace)
    return [*found]


def shape_inputs(spec: OpSpec) -> list[str]:
    """Return the inputs whose shapes the declaration restricts, or others by them."""
    used = {name for name, _ in checked_axes(spec)} | {i.same_as for i in spec.inputs}
    return [i.name for i in spec.inputs if i.dims is not None or i.rank or i.same_as is not None or i.name in used]


def last_inferred(spec: OpSpec) -> int:
    """Return the index of the last output that has an inferred shape: the last one that a node cannot leave out, and
    the first tensor of a variadic one.

    The C API does not say how many outputs a node has, and ONNX Runtime 1.18 to 1.31 write
    the shape of one that it lacks past the end of their memory.
    """
    return max(index for index, output in enumerate(spec.outputs) if not output.optional)
