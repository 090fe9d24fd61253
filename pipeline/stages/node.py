"""Write the one-node models of a cell without torch: for operators that exist in ONNX alone.

Folders, files, gates and manifest are those of an export.
"""

from __future__ import annotations

import json

from pipeline.errors import ExportError, missing
from pipeline.evolution import version_at
from pipeline.files import load_module, write_bytes, write_text
from pipeline.glue import names
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.matrix import Cell
from pipeline.models.demand import Demand, check_legal
from pipeline.models.manifest import describe
from pipeline.models.model_gates import check
from pipeline.models.one_node import one_node
from pipeline.models.picture import picture
from pipeline.spec import Lowering


def run(layout: Layout, operator: Operator, *, lowering: Lowering, cell: Cell) -> None:
    """Write model.onnx of every model, then the manifest. Raises ExportError for the first one that a gate refuses."""
    check_legal(operator.spec, cell)
    if lowering != "custom":
        raise ExportError(f"{operator.name}-{lowering}@{cell.export_name}: one node stands for itself; a model of "
                          "standard nodes takes a torch operator, from which it is exported")  # fmt: skip
    path = layout.generated(operator.name) / names.SCHEMA
    try:
        schema = load_module(path, f"{operator.name}_schema").schema
    except FileNotFoundError as error:
        raise ExportError(missing(path, run=f"python -m pipeline glue {operator.name}")) from error
    models, pictures = {}, {}
    for model in operator.models:
        made = schema(version_at(operator.spec, model.domain_version))
        demand = Demand(spec=operator.spec, model=model, lowering=lowering, cell=cell, schema=made)
        proto = one_node(demand)
        check(proto, demand)
        content = proto.SerializeToString(deterministic=True)
        write_bytes(layout.model(operator.name, lowering, cell, model.name), content)
        models[model.name], pictures[model.name] = describe(proto, content), picture(proto)
    manifest = {"op": operator.name, "lowering": lowering, "cell": cell.export_name, "models": models}
    write_text(layout.manifest(operator.name, lowering, cell), json.dumps(manifest, indent=1) + "\n")
    write_text(layout.pictures(operator.name, lowering, cell), json.dumps(pictures, separators=(",", ":")) + "\n")
