"""Call an operator in torch: the operator itself, and its attributes under the names of the torch schema."""

from __future__ import annotations

from typing import Any

import torch

from opmatrix.declaration.torch_signature import attribute_values, torch_arguments, torch_name
from opmatrix.spec import Model, OpSpec
from opmatrix.toolchain.torch_headers import identity
from opmatrix.version import minor

# What torch, and a binding by way of torch, refuse a call with.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


def torch_operator(spec: OpSpec) -> Any:
    """Return ``torch.ops.<namespace>.<name>``. Raises AttributeError where nothing of that name is registered."""
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    namespace, _, name = spec.torch.name.partition("::")
    return getattr(getattr(torch.ops, namespace), name)


def as_tuple(returned: Any) -> tuple[torch.Tensor, ...]:
    """Return what an operator returned as a tuple: one output comes as it is."""
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)


def inferred(schema: Any) -> bool:
    """Return whether torch made up the names of a schema's arguments, ``_0``, ``_1``: RegisterOperators and
    m.def(name, &function) give none."""
    return bool(schema.arguments) and all(a.name == f"_{n}" for n, a in enumerate(schema.arguments))


def torch_attributes(spec: OpSpec, model: Model) -> dict[str, Any]:
    """Return the value of every attribute, defaults included, by the registered operator's names for them."""
    values = attribute_values(spec, model)
    names = _made_up_names(spec)
    return {
        names.get(torch_name(a), torch_name(a)): list(value) if isinstance(value := values[a.name], tuple) else value
        for a in spec.attributes
        if a.name in values and a.kind != "tensor"
    }


def _made_up_names(spec: OpSpec) -> dict[str, str]:
    """Return the names that torch made up, by those of the declaration; none where it did not."""
    if spec.torch is None or spec.torch.overrides or not inferred(torch_operator(spec).default._schema):
        return {}
    return {argument.name: f"_{n}" for n, argument in enumerate(torch_arguments(spec))}


def torch_minor() -> str:
    """Return the running torch as cells name it: "2.13"."""
    return minor(torch.__version__)


def torch_identity() -> str:
    """Return the running torch as it is written down beside the libraries that fit it alone."""
    return identity(torch.__version__, cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI)
