"""Call an operator in torch: find it, pass its attributes under the names of the torch schema, name the torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from opmatrix.declaration.torch_signature import (
    attribute_values,
    call_of,
    torch_arguments,
    torch_name,
    torch_overload,
    torch_qualified,
    written_schema,
)
from opmatrix.spec import Model, OpSpec
from opmatrix.toolchain.torch_headers import identity
from opmatrix.torch_library.aten_overloads import registered_operator
from opmatrix.version import minor

# The exceptions that torch, and a binding through torch, raise for an invalid call.
CALL_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


def torch_operator(spec: OpSpec) -> Any:
    """Return the operator of a declaration, or its overload. Raises AttributeError if it is not registered."""
    return registered_operator(torch_qualified(spec))


def registered_overload(spec: OpSpec) -> Any:
    """Return the overload of a declaration. Raises AttributeError if it is not registered."""
    found = torch_operator(spec)
    return found if torch_overload(spec) else found.default


def as_tuple(returned: Any) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an operator as a tuple: torch returns a single one without."""
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)


def has_inferred_names(schema: Any) -> bool:
    """Return whether torch named a schema's arguments itself, ``_0``, ``_1``: RegisterOperators and
    m.def(name, &function) pass no names."""
    return bool(schema.arguments) and all(a.name == f"_{n}" for n, a in enumerate(schema.arguments))


def torch_attributes(spec: OpSpec, model: Model) -> dict[str, Any]:
    """Return the value of every attribute, defaults included, by its name in the registered schema."""
    values = attribute_values(spec, model)
    names: dict[str, str] = {}
    if spec.torch and not spec.torch.overrides and has_inferred_names(registered_overload(spec)._schema):
        names = {argument.name: f"_{n}" for n, argument in enumerate(torch_arguments(spec))}
    return {
        names.get(torch_name(a), torch_name(a)): list(value) if isinstance(value := values[a.name], tuple) else value
        for a in spec.attributes
        if a.name in values and a.kind != "tensor"
    }


def torch_call(spec: OpSpec, model: Model, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with `inputs` in the declared order: those by position, and those by name."""
    return call_of(spec, torch_attributes(spec, model))(inputs)


def with_attributes(operator: Callable[..., Any], spec: OpSpec, model: Model) -> Callable[..., Any]:
    """Return the operator as a function of its inputs in the declared order."""
    if written_schema(spec) is None:
        return partial(operator, **torch_attributes(spec, model))
    order = call_of(spec, torch_attributes(spec, model))

    def call(*inputs: Any) -> Any:
        positional, keywords = order(inputs)
        return operator(*positional, **keywords)

    return call


def torch_minor() -> str:
    """Return the running torch as cells name it: "2.13"."""
    return minor(torch.__version__)


def torch_identity() -> str:
    """Return the running torch as the `compile` stage writes it for a library that fits one torch alone."""
    return identity(torch.__version__, cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI)
