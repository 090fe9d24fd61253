"""Which checks an operator has besides its cells: its cases, the parts of register in each torch, and the agreement of
exports.

The plan makes a step of each, and the report expects a record of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import overridden_in
from opmatrix.matrix.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.step import CheckKey

AGREEMENT = "agreement"
CASES = "cases"


def torches(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the versions of torch that cells have."""
    return tuple(dict.fromkeys(cell.torch for cell in cells if cell.torch))


def register_parts(layout: Paths, operator: Operator, torch: str) -> tuple[str, ...]:
    """Return the parts of register that this torch checks: none where it has nothing of the operator."""
    declared = operator.spec.torch
    if not declared or (declared.overrides and not overridden_in(operator.spec, torch)):
        return ()
    own = () if declared.overrides else ("nodes", "search")
    # Even where it defines the operator: only the file itself says whether it has a gradient.
    gradient = ("gradient",) if layout.torch_op(operator.name).is_file() else ()
    return ("schema", "kernel", *own, *gradient)


def agreement(operator: Operator, cells: Sequence[Cell]) -> str | None:
    """Return the versions of torch whose exports in `cells` are compared, as "2.9+2.13", or None: a single export has
    nothing to agree with."""
    several = len({cell.export_name for cell in cells}) > 1
    return "+".join(torches(cells)) if several and operator.spec.torch else None


def checks(layout: Paths, operators: Iterable[Operator], cells: Sequence[Cell]) -> Iterator[CheckKey]:
    """Yield every check of operators in the chosen cells."""
    for operator in operators:
        name = operator.name
        yield CheckKey(name, CASES)
        for torch in torches(cells):
            parts = register_parts(layout, operator, torch)
            yield from (CheckKey(name, part, torch=torch) for part in parts)
        if compared := agreement(operator, operator.cells(cells)):
            yield from (CheckKey(name, AGREEMENT, lowering, compared) for lowering in operator.spec.lowerings)
