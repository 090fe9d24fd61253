"""What a model is fed with: which tensors a case gives, what they are called, and how an operator takes them.

An absent optional input gives no tensor; a variadic one gives as many as the case has, each numbered in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opmatrix.spec import Case, Input, Model, OpSpec, Tensor, given

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GraphInput:
    """One tensor that a case gives: for which input (the `index`-th of a variadic one), under which name in the model's
    graph, and its description."""

    part: Input
    index: int
    name: str
    tensor: Tensor


def graph_inputs(spec: OpSpec, model: Model, case: Case) -> tuple[GraphInput, ...]:
    """Return the tensors of a case, in the order in which the model takes them."""
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
    """Return what the operator's node takes, as ONNX writes it: "" for an absent input, unless none follows.

    A variadic input is always one that may follow: onnx's checker wants all places before it filled.
    """
    case = model.cases[0]
    names: list[str] = []
    for part in spec.inputs:
        tensors = given(case, part.name)
        names += [graph_name(model, part, index) for index in range(len(tensors))]
        names += [""] if part.optional and not tensors else []
    while names and not names[-1] and not any(part.variadic for part in spec.inputs):
        names.pop()
    return tuple(names)


def arguments(spec: OpSpec, flat: Sequence[T | None]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from the values of a node's inputs: None for an absent one, a tuple for a variadic
    one, which ONNX has last."""
    values = iter(flat)
    for part in spec.inputs:
        yield tuple(v for v in values if v is not None) if part.variadic else next(values, None)


def case_arguments(spec: OpSpec, case: Case, fed: Sequence[T]) -> Iterator[T | tuple[T, ...] | None]:
    """Yield one argument per input from values in the order of `feeds`."""
    values = iter(fed)
    for part in spec.inputs:
        taken = tuple(next(values) for _ in given(case, part.name))
        yield taken if part.variadic else next(iter(taken), None)
