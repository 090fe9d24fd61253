"""Which sizes a declaration has: those that its inputs and outputs compute, and those that only its kernel knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from opmatrix.declaration.size_expressions import FURTHER, terms
from opmatrix.declaration.size_rules import axes, definitions, once, owners, resolved, size_attributes, sizes_at
from opmatrix.declaration.torch_schema_parser import length
from opmatrix.declaration.torch_signature import torch_arguments, written_schema
from opmatrix.spec import Attribute, Dims, FromKernel, OpSpec, SameAs


def kernel_dims(spec: OpSpec, rule: FromKernel) -> list[str | int | None]:
    """Return the known sizes of an output whose kernel decides the others, which are None; without those of `input`."""
    names = kernel_names(spec, rule)
    if rule.dims is None:
        return [None] * (rule.rank or 0)
    return [None if dim in names else dim for dim in rule.dims]


def kernel_names(spec: OpSpec, rule: SameAs | Dims | FromKernel) -> list[str]:
    """Return the names of sizes that only the kernel knows."""
    if not isinstance(rule, FromKernel):
        return []
    known = {*definitions(spec), *size_attributes(spec)}
    dims = (*(rule.dims or ()), *rule.replace.values())
    return [dim for dim in dims if isinstance(dim, str) and dim.isidentifier() and dim not in known]


def known_replaced(spec: OpSpec, rule: SameAs | FromKernel) -> list[str | int]:
    """Return the sizes that replace those of an input, without removed ones and those that only the kernel knows."""
    decided = kernel_names(spec, rule)
    return [dim for dim in rule.replace.values() if dim is not None and dim not in decided]


def expressions(spec: OpSpec) -> Iterator[str | int]:
    """Yield every size of the declaration's shapes but "..."."""
    for part in spec.inputs:
        yield from (dim for _, dim in (*axes(part), *sizes_at(part)))
    for output in spec.outputs:
        match output.shape:
            case SameAs() as rule:
                yield from known_replaced(spec, rule)
            case Dims(dims=dims):
                yield from (dim for dim in dims if dim != FURTHER)
            case FromKernel() as rule:
                yield from (dim for dim in kernel_dims(spec, rule) if dim is not None)
                yield from known_replaced(spec, rule)


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
    found = {**list_lengths(spec)}
    for term in (term for one in (*expressions(spec), *limits(spec)) for term in terms(one)):
        if term.kind == "item":
            found[term.of] = max(found.get(term.of, 0), int(term.at) + 1)
    return found


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
