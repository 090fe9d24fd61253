"""Call an operator in torch: the operator itself, and its attributes under the names of the torch schema."""

from __future__ import annotations

from typing import Any

import torch

from pipeline.schema import attribute_values, torch_name
from pipeline.spec import Model, OpSpec


def torch_operator(spec: OpSpec) -> Any:
    """Return ``torch.ops.<namespace>.<name>``. Raises AttributeError where nothing of that name is registered."""
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    namespace, _, name = spec.torch.name.partition("::")
    return getattr(getattr(torch.ops, namespace), name)


def torch_attributes(spec: OpSpec, model: Model) -> dict[str, Any]:
    """Return the value of every attribute, defaults included."""
    values = attribute_values(spec, model)
    return {
        torch_name(a): list(value) if isinstance(value := values[a.name], tuple) else value
        for a in spec.attributes
        if a.name in values and a.kind != "tensor"
    }


def torch_minor() -> str:
    """Return the running torch as cells name it: "2.13"."""
    return ".".join(torch.__version__.split(".")[:2])
