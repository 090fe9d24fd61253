"""The inputs and outputs of a model: the tensors of a case, their names in the graph, and the operator's arguments.

An absent optional input has no tensor; a variadic one has as many as the case, numbered in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opmatrix.declaration.variadic_outputs import Item, of_model
from opmatrix.spec import Case, Input, Model, OpSpec, Output, Tensor, given

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GraphInput:
    """One tensor of a case: its input (the `index`-th of a variadic one), its name in the graph, its description."""

    part: Input
    index: int
    name: str
    tensor: Tensor


def graph_inputs(spec: OpSpec, model: Model, case: Case) -> tuple[GraphInput, ...]:
    """Return the tensors of a case, in the order of the model's inputs."""
    return tuple(
        GraphInput(part=part, index=index, name=graph_name(model, part, index), tensor=tensor)
        for part in spec.inputs
        for index, tensor in enumerate(given(case, part.name))
    )


def graph_name(model: Model, part: Input, index: int = 0) -> str:
    """Return the name of an input's tensor in the model's graph: ``x``, or ``others_1`` for a variadic one."""
    name = model.names.get(part.name, part.name)
    return f"{name}_{index}" if part.variadic else name


def node_inputs(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the node's inputs: "" for an absent one, not at the end unless variadic, as onnx's checker requires."""
    case = model.cases[0]
    names: list[str] = []
    for part in spec.inputs:
        tensors = given(case, part.name)
        names += [graph_name(model, part, index) for index in range(len(tensors))]
        names += [""] if part.optional and not tensors else []
    while names and not names[-1] and not any(part.variadic for part in spec.inputs):
        names.pop()
    return tuple(names)


def graph_outputs(spec: OpSpec, model: Model) -> tuple[Output, ...]:
    """Return the outputs that a model has, without optional ones that its node leaves out."""
    return tuple(part for part in of_model(spec, model).outputs if part.name not in model.absent)


def output_name(model: Model, part: Output) -> str:
    """Return the name of an output in the model's graph: ``y``, or ``parts_1`` for a tensor of a variadic one."""
    if isinstance(part, Item):
        return f"{model.names.get(part.of, part.of)}_{part.index}"
    return model.names.get(part.name, part.name)


def output_names(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the name of each output of the operator, as in the model's graph where it has it."""
    return tuple(output_name(model, part) for part in of_model(spec, model).outputs)


def node_outputs(spec: OpSpec, model: Model) -> tuple[str, ...]:
    """Return the node's outputs: "" for one that is left out, not at the end."""
    parts = of_model(spec, model).outputs
    names = ["" if part.name in model.absent else output_name(model, part) for part in parts]
    while names and not names[-1]:
        names.pop()
    return tuple(names)


def present(spec: OpSpec, model: Model, outputs: Sequence[T]) -> tuple[T, ...]:
    """Return those of the operator's outputs that a model has."""
    parts = of_model(spec, model).outputs
    return tuple(o for part, o in zip(parts, outputs, strict=True) if part.name not in model.absent)


def arguments(spec: OpSpec, flat: Sequence[T | None]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from the values of a node's inputs: None for an absent one, a tuple for a variadic
    one, which ONNX has last."""
    values = iter(flat)
    for part in spec.inputs:
        yield tuple(v for v in values if v is not None) if part.variadic else next(values, None)


def case_arguments(spec: OpSpec, case: Case, fed: Sequence[T]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from values in the order of `graph_inputs`."""
    values = iter(fed)
    for part in spec.inputs:
        taken = tuple(next(values) for _ in given(case, part.name))
        yield taken if part.variadic else next(iter(taken), None)
