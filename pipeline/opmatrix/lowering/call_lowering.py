"""Call a lowering: its arguments as the declaration has them, its result as the declaration wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from opmatrix.declaration.torch_signature import as_float32, attribute_values, torch_arguments
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.errors import ExportError
from opmatrix.lowering.graph import Graph, Value
from opmatrix.spec import Attribute, AttributeValue, Lowering, Model, OpSpec


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """An operator and the function that turns it into nodes, among them such of the operators that it uses."""

    spec: OpSpec
    lowering: Lowering
    function: Callable[..., Any]
    used: tuple[OpSpec, ...] = ()

    def __call__(self, g: Graph, arguments: Sequence[Any]) -> tuple[Value, ...]:
        """Emit the nodes for the arguments of the torch schema; return the operator's outputs.

        Raises ExportError for a dtype or a value that the declaration forbids, where the function does not take these
        arguments, and where it gives another number of outputs.
        """
        self._check(g, arguments)
        sources = [a.source for a in torch_arguments(self.spec)]
        rounded = [
            as_float32(source, _plain(value)) if isinstance(source, Attribute) and value is not None else value
            for source, value in zip(sources, arguments, strict=True)
        ]
        self._check_version(g, rounded)
        result = self.function(g, *rounded)
        outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(outputs) != len(self.spec.outputs) or any(o is None for o in outputs):
            raise ExportError(
                f"the lowering {self.lowering!r} returns {len(outputs)} values, declared: {len(self.spec.outputs)} "
                f"outputs. Return them all, and give a node of several outputs outputs=<their number>"
            )
        return outputs

    def _check_version(self, g: Graph, arguments: Sequence[Any]) -> None:
        """Refuse, where the node's schema does not have an attribute yet, all of its values but what it stands for."""
        domain = self.spec.onnx.domain
        for argument, value in zip(torch_arguments(self.spec), arguments, strict=True):
            source = argument.source
            if self.lowering != "custom" or not isinstance(source, Attribute) or source.default is None:
                continue
            if source.since and g.version(domain) < source.since and value != as_float32(source, source.default):
                raise ExportError(
                    f"{self.spec.name}: {argument.name}={value!r} needs version {source.since} of {domain!r}, and the "
                    f"model imports {g.version(domain)}, where it is {source.default!r}. Export at a newer version of "
                    f"the domain, or leave it out"
                )

    def _check(self, g: Graph, arguments: Sequence[Any]) -> None:
        """Refuse what the operator's own binding would: torch has none where it is torch's or Python's operator."""
        spec = self.spec
        for argument, value in zip(torch_arguments(spec), arguments, strict=True):
            source = argument.source
            if isinstance(source, Attribute):
                if value is not None and (why := value_mistake(source, _plain(value))):
                    raise ExportError(f"{spec.name}: {argument.name}: {why}")
                continue
            allowed = spec.types.get(source.type) or (source.type,)
            for tensor in value if isinstance(value, list | tuple) else () if value is None else (value,):
                if (dtype := g.dtype(tensor)) and dtype not in allowed:
                    raise ExportError(f"{spec.name}: {source.name} must be {' or '.join(allowed)}, got {dtype}")


def find(spec: OpSpec, lowering: Lowering, *, written: ModuleType | None, derived: ModuleType, path: Path) -> Lowered:
    """Return the lowering from ops/<name>/lowering.py, `written`, or the node that follows from the declaration.

    Raises ExportError where there is neither.
    """
    function = getattr(written, lowering, None) or getattr(derived, lowering, None)
    if not callable(function):
        names = ", ".join(["g", *(a.name for a in torch_arguments(spec))])
        raise ExportError(f"{spec.name}: no lowering {lowering!r}. Write it in {path}: def {lowering}({names})")
    return Lowered(spec=spec, lowering=lowering, function=function)


def constants(spec: OpSpec, model: Model) -> tuple[AttributeValue | None, ...]:
    """Return the arguments that are no tensors, in the order of the torch schema, as a model has them."""
    values = attribute_values(spec, model)
    return tuple(values.get(a.source.name) for a in torch_arguments(spec) if isinstance(a.source, Attribute))


def _plain(value: Any) -> AttributeValue:
    return tuple(value) if isinstance(value, list) else value
