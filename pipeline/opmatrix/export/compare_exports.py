"""Compare the exported nodes of one operator in several cells, from the manifests of the exports; leave a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from opmatrix.basics.errors import ExportError, missing
from opmatrix.declaration.checks import AGREEMENT, torches
from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord
from opmatrix.spec import Lowering

Manifest = Mapping[str, Any]


def run(paths: Paths, operator: Operator, *, lowering: Lowering, cells: Sequence[Cell]) -> None:
    """Write the record; raise ExportError unless all `cells` have the same custom nodes: domain, version, op type and
    attributes.

    The names of inner values differ between exporters, so neither they nor the edges are compared.
    """
    compared = "+".join(torches(cells))
    problems = _problems(paths, operator, lowering, cells)
    record = CheckRecord(
        op=operator.name,
        check=AGREEMENT,
        lowering=lowering,
        torch=compared,
        outcome="failed" if problems else "verified",
        detail="\n".join(problems),
        results=tuple({"export": cell.export_name} for cell in cells),
    )
    verdict.write(paths.agreement(operator.name, lowering, torch=compared), record)
    if problems:
        raise ExportError(record.detail)


def _problems(paths: Paths, operator: Operator, lowering: Lowering, cells: Sequence[Cell]) -> list[str]:
    """Return a line for each model whose nodes differ between two neighbours of those of `cells` whose torch has its
    dtypes."""
    manifests: dict[Cell, Manifest] = {}
    for cell in cells:
        path = paths.manifest(operator.name, lowering, cell)
        try:
            manifests[cell] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            replay = f"python -m opmatrix export {operator.name} --lowering {lowering} --cell {cell}"
            raise ExportError(missing(path, run=replay)) from error
    problems = []
    for model in sorted({name for manifest in manifests.values() for name in manifest["models"]}):
        written = [c for c, found in manifests.items() if not found["models"].get(model, {}).get("lacks_dtype")]
        for a, b in pairwise(written):
            nodes = [_custom_nodes(manifests[cell], model) for cell in (a, b)]
            if nodes[0] != nodes[1]:
                problems.append(
                    f"{operator.name}-{lowering}-{model}: {a.export_name} has {nodes[0]}, "
                    f"{b.export_name} has {nodes[1]}. Fix the lowering that differs"
                )
    return problems


def _custom_nodes(manifest: Manifest, model: str) -> list[str]:
    """Return the custom nodes of a model as sorted strings: ``mydomain::mygroupnorm@2(epsilon=FLOAT 0.0)``."""
    described = manifest["models"].get(model, {"nodes": []})
    found = []
    for node in described["nodes"]:
        if domain := node["domain"]:
            attributes = ", ".join(f"{name}={a['type']} {a['value']}" for name, a in node["attributes"].items())
            found.append(f"{domain}::{node['op_type']}@{described['opset_imports'].get(domain)}({attributes})")
    return sorted(found)
