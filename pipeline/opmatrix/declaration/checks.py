"""Which checks an operator has besides its cells: its cases, what is drawn for a search in ONNX Runtime, the parts of
register in each torch, and the agreement of exports.

The plan has a step for each, and the report expects a record of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records.step import CheckKey
from opmatrix.signature.signature import OWN_ORT, OWN_TORCH, has_kernel, has_torch_library, is_own, overridden_in
from opmatrix.sizes.values import ruled_inputs
from opmatrix.spec import OpSpec

AGREEMENT = "agreement"
CASES = "cases"
COMPAT = "compat"
DRAWN = "draw-inputs"
Part = Literal["schema", "nodes", "kernel", "search", "forbidden", "gradient"]
"""A part of the stage register, which has a record of its own."""


def torches(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the versions of torch that cells have."""
    return tuple(dict.fromkeys(cell.torch for cell in cells if cell.torch))


def register_parts(paths: Paths, operator: Operator, torch: str) -> tuple[Part, ...]:
    """Return the parts of register that doit plans in this torch: none where it has nothing of the operator."""
    declared = operator.spec.torch
    if not declared or (declared.overrides and not overridden_in(operator.spec, torch)):
        return ()
    own: tuple[Part, ...] = () if declared.overrides else ("nodes", "search")
    # Even where it defines the operator: only the file itself says whether it has a gradient.
    derived = paths.torch_op(operator.name).is_file() or declared.backward
    gradient: tuple[Part, ...] = ("gradient",) if derived else ()
    forbidden: tuple[Part, ...] = ("forbidden",) if refuses_in_torch(operator) else ()
    return ("schema", "kernel", *own, *forbidden, *gradient)


def runs_beyond_eager(operator: Operator) -> bool:
    """Return whether `doit compat` has rows: for an operator that opmatrix or its project defines in torch."""
    return operator.spec.torch is not None and not operator.spec.torch.overrides


def refuses_in_torch(operator: Operator) -> bool:
    """Return whether every run makes calls in torch that break the rules of values: where a generated binding checks
    them. A handwritten one checks only what its author decided."""
    spec = operator.spec
    ruled = any(True for _ in ruled_inputs(spec))
    return ruled and has_torch_library(spec) and not is_own(OWN_TORCH, spec, operator.handwritten_files)


def refuses_in_onnx_runtime(operator: Operator, cell: Cell) -> bool:
    """Return whether verify makes invalid calls in ONNX Runtime: where values have rules, and for an operator that
    only ONNX has, since no other step of `doit` makes them."""
    spec = operator.spec
    wanted = cell.torch is None or any(True for _ in ruled_inputs(spec))
    return wanted and has_kernel(spec) and not is_own(OWN_ORT, spec, operator.handwritten_files)


def searches_in_onnx_runtime(spec: OpSpec) -> bool:
    """Return whether verify compares the kernel with the reference on drawn inputs: that of an operator whose kernel
    torch does not run."""
    return has_kernel(spec) and (spec.torch is None or bool(spec.torch.overrides))


def draws(spec: OpSpec) -> bool:
    """Return whether inputs are drawn: for the search in torch or in ONNX Runtime, and for the sanitizers."""
    return searches_in_onnx_runtime(spec) or (spec.torch is not None and not spec.torch.overrides)


def agreement(operator: Operator, cells: Sequence[Cell]) -> str | None:
    """Return the versions of torch whose exports in `cells` are compared, as "2.9+2.13", or None: a single export has
    no other to be compared with."""
    several = len({cell.export_name for cell in cells}) > 1
    return "+".join(torches(cells)) if several and operator.spec.torch else None


def checks(paths: Paths, operators: Iterable[Operator], cells: Sequence[Cell]) -> Iterator[CheckKey]:
    """Yield every check of operators in the chosen cells."""
    for operator in operators:
        name = operator.name
        yield CheckKey(name, CASES)
        if searches_in_onnx_runtime(operator.spec):
            yield CheckKey(name, DRAWN)
        for torch in torches(cells):
            parts = register_parts(paths, operator, torch)
            yield from (CheckKey(name, part, torch=torch) for part in parts)
        if compared := agreement(operator, operator.cells(cells)):
            yield from (CheckKey(name, AGREEMENT, lowering, compared) for lowering in operator.spec.lowerings)
