"""The batch of an operator, `TorchOp.batch`: an axis of inputs and outputs whose indices it treats one by one.

torch.vmap then makes this axis longer and calls the operator once. With a name of a size it is the axis of that size;
with "...", it is an axis that is added where the sizes of "..." begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.signature.signature import is_required
from opmatrix.sizes.expressions import FURTHER, Term
from opmatrix.sizes.rules import declared_sizes, expressions, input_of, is_named, leader, limits, resolved_terms
from opmatrix.spec import Dims, FromKernel, OpSpec, Output, SameAs

_Sizes = Sequence[str | int]


@dataclass(frozen=True, kw_only=True)
class BatchAxes:
    """The axis of the batch in each input that has it, by name, and in each output; negative: from the back.

    `is_added`: whether it is one more axis, in front of those of "...".
    """

    inputs: Mapping[str, int]
    outputs: Sequence[int]
    is_added: bool


def batch_axes(spec: OpSpec) -> BatchAxes | None:
    """Return the batch that a declaration without mistakes names, or None."""
    batch = spec.torch.batch if spec.torch else ""
    if not batch:
        return None
    outputs = (_sizes_of_output(spec, output, batch) for output in spec.outputs)
    return BatchAxes(
        inputs={name: _axis(sizes, batch) for name, sizes in _with_batch(spec, batch).items()},
        outputs=tuple(_axis(sizes, batch) for sizes in outputs if not isinstance(sizes, str)),
        is_added=batch == FURTHER,
    )


def batch_mistakes(spec: OpSpec) -> Iterator[str]:
    """Yield why `TorchOp.batch` can be no batch: a sentence each."""
    batch = spec.torch.batch if spec.torch else ""
    if not batch:
        return
    found = _with_batch(spec, batch)
    known = dict.fromkeys(d for part in spec.inputs if is_required(part) for d in declared_sizes(spec, part))
    if batch not in (usable := [str(size) for size in known if size == FURTHER or is_named(spec, size)]):
        yield f"no required input has such an axis, allowed: {', '.join(usable) or 'none: they have no named size'}"
        return
    parts = [input_of(spec, name) for name in found]
    for part in parts:
        sizes, first, rule = declared_sizes(spec, part), leader(spec, parts[0]), part.values
        if sizes.count(batch) > 1:
            yield f"the input {part.name!r} has it twice, allowed: once"
        if part.at:
            yield f"an attribute names an axis of the input {part.name!r}, which may be this one; remove it"
        if batch == FURTHER and leader(spec, part) != first:
            yield f"{first!r} and {part.name!r} have a '...' each, allowed: with further_as={first!r}, or same_as"
        if rule and (rule.sorted or rule.unique or rule.spans) and sizes[-1] == batch:
            yield f"the rule for the values of {part.name!r} (sorted, unique, spans) is along this axis; remove it"
    for one in dict.fromkeys(str(one) for one in (*expressions(spec), *limits(spec))):
        if one != batch and any(_is_of_batch(spec, term, batch) for term in resolved_terms(spec, one)):
            yield f"{one!r} depends on it, so that no index is computed alone; remove it"
    for output in spec.outputs:
        if isinstance(why := _sizes_of_output(spec, output, batch), str):
            yield f"the output {output.name!r} {why}; allowed where each output has the axis"


def _with_batch(spec: OpSpec, batch: str) -> dict[str, _Sizes]:
    return {part.name: sizes for part in spec.inputs if batch in (sizes := declared_sizes(spec, part))}


def _axis(sizes: _Sizes, batch: str) -> int:
    at = sizes.index(batch)
    return at - len(sizes) if FURTHER in sizes[:at] else at


def _place(sizes: _Sizes, axis: int) -> int:
    """Return the index in declared sizes of an axis of a tensor: that of "..." for each of its axes."""
    if FURTHER not in sizes:
        return axis % len(sizes)
    front = sizes.index(FURTHER)
    behind = len(sizes) - front - 1
    return axis if 0 <= axis < front else axis + len(sizes) if -behind <= axis < 0 else front


def _may_be_batch(sizes: _Sizes, axis: int, batch: str) -> bool:
    return sizes[_place(sizes, axis)] in (batch, FURTHER)


def _is_of_batch(spec: OpSpec, term: Term, batch: str) -> bool:
    """Return whether a term of a size is the length of the batch, or is changed by an axis more."""
    part = next((part for part in spec.inputs if part.name == term.of), None)
    if term.kind == "product":
        return batch == FURTHER
    if part is None or batch not in (sizes := declared_sizes(spec, part)):
        return False
    if term.kind == "size":
        return isinstance(term.at, str) or _may_be_batch(sizes, term.at, batch)
    return term.kind == "rank" and batch == FURTHER


def _sizes_of_output(spec: OpSpec, output: Output, batch: str) -> _Sizes | str:
    """Return the declared sizes of an output, or why it has no batch."""
    match output.shape:
        case FromKernel():
            return "has a size that the kernel decides, for all indices together"
        case Dims(dims=dims):
            return dims if dims.count(batch) == 1 else f"has the sizes {dims}"
        case SameAs(input=name, replace=replace):
            part = next((part for part in spec.inputs if part.name == name), None)
            sizes: list[str | int | None] = [*(declared_sizes(spec, part) if part else ())]
            if batch not in sizes:
                return f"has the shape of {name!r}, which has no such axis"
            before = [size for size in sizes if size is not None]
            for axis, size in replace.items():
                if isinstance(axis, str) or _may_be_batch(before, axis, batch):
                    return f"has another axis in place of {axis!r} of {name!r}, which may be this one"
                sizes[_place(before, axis)] = size
            return [size for size in sizes if size is not None]
