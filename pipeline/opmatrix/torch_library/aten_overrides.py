"""Check that this torch has the ATen operators that a declaration overrides, with the declared arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from opmatrix.declaration.torch_signature import torch_arguments, torch_schema
from opmatrix.errors import RegisterError
from opmatrix.spec import Attribute, OpSpec
from opmatrix.torch_library import aten_overloads

_TENSORS = ("Tensor", "Optional[Tensor]", "List[Tensor]")
_TAKEN_BY: Mapping[str, Collection[str]] = {"number": ("number", "float", "int")}  # ATen's Scalar takes all three


def check(spec: OpSpec) -> None:
    """Raise RegisterError for each difference, and ExportError if this torch does not have the operator."""
    problems = [
        f"{spec.name}: torch {torch.__version__} has {overload._schema}, declared: {torch_schema(spec)}: {what}. "
        f"Mend the declaration, or bound the override with first= and last= in ops/{spec.name}/spec.py"
        for overload in aten_overloads.overloads(spec)
        for what in _differences(spec, overload._schema)
    ]
    if problems:
        raise RegisterError("\n".join(problems))


def _differences(spec: OpSpec, found: Any) -> Iterator[str]:
    declared = torch._C.parse_schema(torch_schema(spec))
    attributes = [a.name for a in torch_arguments(spec) if isinstance(a.source, Attribute)]
    kinds = {a.name: str(a.type) for a in declared.arguments}
    tensors = [str(a.type) for a in found.arguments if str(a.type) in _TENSORS]
    wanted = [str(a.type) for a in declared.arguments if a.name not in attributes]
    if tensors != wanted:
        yield f"it takes {', '.join(tensors) or 'no tensors'}, not {', '.join(wanted)}"
    others = {a.name: a for a in found.arguments if str(a.type) not in _TENSORS}
    for name in attributes:
        if name not in others:
            yield f"it has no argument {name!r}, but {', '.join(others) or 'none'}"
        elif kinds[name] not in _TAKEN_BY.get(kind := str(others[name].type), (kind,)):
            yield f"its argument {name!r} is of type {others[name].type}, not {kinds[name]}"
    for name, argument in others.items():
        if name not in attributes and not argument.has_default_value():
            yield f"its argument {name!r} has no default and is not declared"
    if len(found.returns) != len(spec.outputs):
        yield f"it returns {len(found.returns)} values, not {len(spec.outputs)}"
