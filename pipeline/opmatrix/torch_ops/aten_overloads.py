"""The operators of the running torch that a lowering is registered for, by name and as overloads. Needs torch.

A wheel of operators has a copy, without the rest of `call`.
"""

from __future__ import annotations

from typing import Any

import torch

from opmatrix.basics.errors import ExportError
from opmatrix.basics.version import minor
from opmatrix.signature.signature import overridden_in, torch_operator_name, torch_overload
from opmatrix.spec import OpSpec


def registered_operator(name: str) -> Any:
    """Return ``torch.ops.namespace.name`` for ``namespace::name``, or its overload for ``namespace::name.overload``.

    Raises AttributeError if it is not registered.
    """
    namespace, _, function = name.partition("::")
    function, _, overload = function.partition(".")
    found = getattr(getattr(torch.ops, namespace), function)
    return getattr(found, overload) if overload else found


def overload_named(name: str) -> Any:
    """Return the overload of ``namespace::name`` or ``namespace::name.overload``."""
    found = registered_operator(name)
    return found if "." in name.partition("::")[2] else found.default


def names(spec: OpSpec) -> tuple[str, ...]:
    """Return the operator's name, or the ATen operators that it overrides here. Raises ExportError for none."""
    if spec.torch is None:
        raise ExportError(f"{spec.name} is declared without a torch operator: no exporter of torch can write it")
    if not spec.torch.overrides:
        return (torch_operator_name(spec),)
    running = minor(torch.__version__)
    if overridden := overridden_in(spec, running):
        return overridden
    ranges = ", ".join(
        f"{o.name} from torch {o.first or 'the first'} to {o.last or 'the last'}" for o in spec.torch.overrides
    )
    raise ExportError(f"{spec.name}: it overrides {ranges}, and this is torch {running}. Widen the range")


def overloads(spec: OpSpec) -> tuple[torch._ops.OpOverload, ...]:
    """Return the default overloads of `names`, for a translation table. Raises ExportError for a missing one."""
    found = []
    if overload := torch_overload(spec):
        return (registered_operator(f"{names(spec)[0]}.{overload}"),)
    for name in names(spec):
        try:
            found.append(registered_operator(name).default)
        except AttributeError as error:
            raise ExportError(
                f"{spec.name}: torch {torch.__version__} has no operator {name!r} with a default overload. "
                f"Bound the override with first= and last= in ops/{spec.name}/spec.py"
            ) from error
    return tuple(found)
