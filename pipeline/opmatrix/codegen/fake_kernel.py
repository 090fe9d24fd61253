"""The variables of the fake kernel's template: its error checks and its outputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opmatrix.declaration.size_expressions import size_attributes, size_owners, with_names
from opmatrix.declaration.torch_signature import is_required, torch_name
from opmatrix.spec import FromKernel, Input, OpSpec, Output, SameAs

ITEM = "item"  # one tensor of a variadic input


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The condition of a wrong input and its message; `of` is the variadic input whose tensors it checks, or None."""

    condition: str
    message: str
    of: str | None


@dataclass(frozen=True, kw_only=True)
class Result:
    """One output. `shape` is an expression, `dtype` too, or None for the dtype of the input `like`."""

    name: str
    like: str
    shape: str
    dtype: str | None


def variables(spec: OpSpec) -> dict[str, Any]:
    """Return the variables of fake.py's template, without the arguments."""
    return {
        "results": [_result(spec, o) for o in spec.outputs],
        "faults": [*_dtype_faults(spec), *_shape_faults(spec)],
        "finds_sizes": any(isinstance(o.shape, FromKernel) for o in spec.outputs),
    }


def _result(spec: OpSpec, output: Output) -> Result:
    required = [i for i in spec.inputs if is_required(i)]
    like = required[0]
    if isinstance(output.shape, SameAs):
        like = next(i for i in required if i.name == output.shape.input)
        shape = f"{like.name}.shape"
    elif isinstance(output.shape, FromKernel):
        shape = _tuple(["new_size()"] * output.shape.rank)
    else:
        named = {name: torch_name(a) for name, a in size_attributes(spec).items()}
        named |= {name: f"{owner}.shape[{axis}]" for name, (owner, axis) in size_owners(spec).items()}
        shape = _tuple([ast.unparse(with_names(dim, named)) for dim in output.shape.dims])
    return Result(
        name=output.name, like=like.name, shape=shape,
        dtype=None if like.type == output.type else _dtype(spec, output.type),
    )  # fmt: skip


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(spec: OpSpec, declared: str) -> str:
    """Return the torch expression of a declared type."""
    of_type = (i.name for i in spec.inputs if declared in spec.types and i.type == declared and is_required(i))
    return next((f"{name}.dtype" for name in of_type), f"torch.{declared}")


def _fault(part: Input, condition: str, message: str) -> Refusal:
    """Return the check of an input, with the condition that an optional one is present."""
    if part.optional:
        bare = " or " not in condition
        condition = f"{part.name} is not None and {condition if bare else f'({condition})'}"
    return Refusal(condition=condition, message=message, of=part.name if part.variadic else None)


def _dtype_faults(spec: OpSpec) -> Iterator[Refusal]:
    leaders = {i.type: i.name for i in reversed(spec.inputs) if i.type in spec.types and is_required(i)}
    for part in spec.inputs:
        name, found = part.name, ITEM if part.variadic else part.name
        leader = leaders.get(part.type)
        if leader and leader != name:
            message = f"{name} must be {{{leader}.dtype}} as {leader} is, got {{{found}.dtype}}"
            yield _fault(part, f"{found}.dtype != {leader}.dtype", message)
            continue
        allowed = [f"torch.{dtype}" for dtype in spec.types.get(part.type, (part.type,))]
        wrong = f"!= {allowed[0]}" if len(allowed) == 1 else f"not in ({', '.join(allowed)})"
        yield _fault(part, f"{found}.dtype {wrong}", f"{name} must be {' or '.join(allowed)}, got {{{found}.dtype}}")


def _shape_faults(spec: OpSpec) -> Iterator[Refusal]:
    """Yield the shape checks of each input, with the messages of the compiled binding."""
    leaders = {dim: (f"{owner}.shape[{axis}]", owner) for dim, (owner, axis) in size_owners(spec).items()}
    for part in spec.inputs:
        name, found = part.name, ITEM if part.variadic else part.name
        if part.same_as is not None:
            shapes = f"{{tuple({part.same_as}.shape)}}, got {{tuple({found}.shape)}}"
            yield _fault(
                part,
                f"{found}.shape != {part.same_as}.shape",
                f"{name} must have the shape of {part.same_as}, {shapes}",
            )
        if part.dims is None:
            continue
        fixed = [dim for dim in part.dims if dim != "..."]
        conditions = [f"{found}.dim() {'!=' if len(fixed) == len(part.dims) else '<'} {len(fixed)}"]
        origins = []
        for axis, dim in enumerate(fixed):
            size = f"{found}.shape[{axis}]"
            leader, owner = (str(dim), name) if isinstance(dim, int) else leaders[dim]
            conditions += [f"{size} != {leader}"] if leader != size else []
            origins += [f"{dim} = {{{leader}}} as in {owner}"] if owner != name else []
        shape = _tuple([str(dim) for dim in part.dims])
        origin = " with " + " and ".join(origins) if origins else ""
        yield _fault(
            part,
            " or ".join(conditions),
            f"{name} must have shape {shape}{origin}, got {{tuple({found}.shape)}}",
        )
