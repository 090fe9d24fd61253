"""Which operators of the running torch a lowering is registered for. Needs torch."""

from __future__ import annotations

import torch

from opmatrix.declaration.torch_signature import overridden_in
from opmatrix.errors import ExportError
from opmatrix.spec import OpSpec
from opmatrix.version import minor


def names(spec: OpSpec) -> tuple[str, ...]:
    """Return the operator's own name, or those of the ATen operators that it overrides in this torch.

    Raises ExportError where it overrides none in this torch.
    """
    if spec.torch is None:
        raise ExportError(f"{spec.name} is declared without a torch operator: no exporter of torch can write it")
    if not spec.torch.overrides:
        return (spec.torch.name,)
    running = minor(torch.__version__)
    if not (found := overridden_in(spec, running)):
        ranges = ", ".join(
            f"{o.name} from torch {o.first or 'the first'} to {o.last or 'the last'}" for o in spec.torch.overrides
        )
        raise ExportError(f"{spec.name}: it overrides {ranges}, and this is torch {running}. Widen the range")
    return found


def overloads(spec: OpSpec) -> tuple[torch._ops.OpOverload, ...]:
    """Return the default overloads of `names`: a translation table is keyed by overloads.

    Raises ExportError where this torch has no such operator.
    """
    found = []
    for name in names(spec):
        namespace, _, function = name.partition("::")
        try:
            found.append(getattr(getattr(torch.ops, namespace), function).default)
        except AttributeError as error:
            raise ExportError(
                f"{spec.name}: torch {torch.__version__} has no operator {name!r} with a default overload. "
                f"Bound the override with first= and last= in ops/{spec.name}/spec.py"
            ) from error
    return tuple(found)
