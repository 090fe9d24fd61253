"""The outputs of one call: a variadic output has as many tensors as an input has, or as an attribute says.

The declaration of a call has a plain output for each of them, so that all who compare outputs one by one need not know
of variadic ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from opmatrix.signature.signature import attribute_values, is_required
from opmatrix.sizes.rules import once
from opmatrix.spec import Attribute, Input, Model, OpSpec, Output, SameAs, tensors_of

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Item(Output):
    """One tensor of the variadic output `of`, in the declaration of a call."""

    of: str
    index: int


def variadic_output(spec: OpSpec) -> Output | None:
    """Return the output that has any number of tensors: the last one, if any."""
    return spec.outputs[-1] if spec.outputs and spec.outputs[-1].variadic else None


def counter(spec: OpSpec) -> Input | Attribute | None:
    """Return what says how many tensors the variadic output has."""
    last = variadic_output(spec)
    parts: list[Input | Attribute] = [*spec.inputs, *spec.attributes]
    return next((part for part in parts if last and part.name == last.variadic), None)


def sure_inputs(spec: OpSpec) -> list[Input]:
    """Return the inputs of which every call has a tensor: the required ones, and a variadic one that counts outputs."""
    return [part for part in spec.inputs if is_required(part) or part is counter(spec)]


def has_own_shapes(output: Output) -> bool:
    """Return whether each tensor of a variadic output has the shape of its tensor of the input that counts it."""
    return isinstance(output.shape, SameAs) and output.shape.input == output.variadic


def count(spec: OpSpec, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> int:
    """Return how many tensors the variadic output of a call has; `inputs` has the tensors of the variadic input."""
    part = counter(spec)
    assert part is not None
    if isinstance(part, Input):
        return len(inputs.get(part.name) or ())
    value = attributes.get(part.name, part.default)
    return len(value) if isinstance(value, tuple | list) else int(value)


def reason(spec: OpSpec) -> str:
    """Return in words what says how many tensors the variadic output has."""
    part = counter(spec)
    assert part is not None
    if isinstance(part, Input):
        return f"one for each tensor of {part.name}"
    return f"one for each item of {part.name}" if part.kind == "ints" else f"as {part.name} says"


@once
def _made(spec: OpSpec) -> dict[int, OpSpec]:
    """Return the declarations of calls that were made of a declaration, by the number of tensors."""
    return {}


def with_count(spec: OpSpec, number: int) -> OpSpec:
    """Return the declaration of a call in which the variadic output has `number` tensors: an output for each."""
    last = variadic_output(spec)
    if last is None:
        return spec
    known = _made(spec)
    if number not in known:
        fields = {name: getattr(last, name) for name in ("type", "no_effect", "doc")}
        items = [
            Item(
                **fields,
                name=f"{last.name}_{n}",
                shape=SameAs(input=f"{last.variadic}[{n}]") if has_own_shapes(last) else last.shape,
                of=last.name,
                index=n,
            )
            for n in range(number)
        ]
        known[number] = replace(spec, outputs=(*spec.outputs[:-1], *items))
    return known[number]


def with_outputs(spec: OpSpec, outputs: int) -> OpSpec:
    """Return the declaration of a call with so many outputs; as it is, where no output is variadic."""
    return with_count(spec, outputs - len(spec.outputs) + 1)


def of_model(spec: OpSpec, model: Model) -> OpSpec:
    """Return the declaration of a model's calls, of which all have as many tensors as the first case."""
    if variadic_output(spec) is None:
        return spec
    inputs = {part.name: tensors_of(model.cases[0], part.name) for part in spec.inputs}
    return with_count(spec, count(spec, inputs, attribute_values(spec, model)))


def shapes_by_input(shapes: Iterable[tuple[Input, S]]) -> dict[str, S]:
    """Return the shape of each input, the first of a variadic one, and as ``xs[1]`` that of each tensor of it."""
    by_name: dict[str, S] = {}
    counts: dict[str, int] = {}
    for part, shape in shapes:
        by_name.setdefault(part.name, shape)
        if part.variadic:
            index = counts[part.name] = counts.get(part.name, -1) + 1
            by_name[f"{part.name}[{index}]"] = shape
    return by_name


def flat(returned: Any) -> tuple[Any, ...]:
    """Return the outputs of a call, of which one may be a list, as one tuple."""
    outputs = returned if isinstance(returned, tuple | list) else (returned,)
    if not any(isinstance(one, tuple | list) for one in outputs):
        return tuple(outputs)
    return tuple(item for one in outputs for item in (one if isinstance(one, tuple | list) else (one,)))


def nested(spec: OpSpec, outputs: Sequence[Any]) -> Any:
    """Return the outputs of a call as torch does: one alone, a tuple of several, and a list for a variadic one."""
    if variadic_output(spec) is None:
        return outputs[0] if len(spec.outputs) == 1 else outputs
    fixed = len(spec.outputs) - 1
    return (*outputs[:fixed], [*outputs[fixed:]]) if fixed else [*outputs]
