"""Hold the exports of one operator in several cells against each other. Reads their manifests alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from pipeline.errors import ExportError, missing
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.matrix import Cell
from pipeline.models.agreement import Manifest, custom_nodes, differing_models
from pipeline.spec import Lowering


def run(layout: Layout, operator: Operator, *, lowering: Lowering, cells: Sequence[Cell]) -> None:
    """Raise ExportError unless all `cells` have the same custom nodes."""
    manifests = {cell: _read(layout, operator, lowering, cell) for cell in cells}
    problems = [
        f"{operator.name}-{lowering}-{model}: {a.export_name} has {custom_nodes(manifests[a], model)}, "
        f"{b.export_name} has {custom_nodes(manifests[b], model)}. Mend the lowering that differs"
        for a, b in pairwise(cells)
        for model in differing_models(manifests[a], manifests[b])
    ]
    if problems:
        raise ExportError("\n".join(problems))


def _read(layout: Layout, operator: Operator, lowering: Lowering, cell: Cell) -> Manifest:
    path = layout.manifest(operator.name, lowering, cell)
    try:
        manifest: Manifest = json.loads(path.read_text())
    except FileNotFoundError as error:
        replay = f"python -m pipeline export {operator.name} --lowering {lowering} --cell {cell}"
        raise ExportError(missing(path, run=replay)) from error
    return manifest
