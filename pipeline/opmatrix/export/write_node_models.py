"""Write the one-node models of operators that exist only in ONNX, without torch, as the stage export does."""

from __future__ import annotations

from opmatrix.basics.errors import ExportError
from opmatrix.declaration.load import Operator
from opmatrix.export import manifest
from opmatrix.export.gates import check
from opmatrix.export.generated_modules import generated_module
from opmatrix.export.manifest import Exported
from opmatrix.export.signature import ExpectedModel, check_legal, one_node
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.signature.versions import version_at
from opmatrix.spec import Lowering


def run(paths: Paths, operator: Operator, *, lowering: Lowering, cell: Cell) -> None:
    """Write model.onnx of every model, then the manifest. Raises ExportError for the first one that a gate rejects."""
    check_legal(operator.spec, cell)
    if lowering != "custom":
        raise ExportError(f"{operator.name}-{lowering}@{cell.export_name}: one node stands for itself; a model of "
                          "standard nodes takes a torch operator, from which it is exported")  # fmt: skip
    schema = generated_module(paths, operator.name, "schema").schema
    exported = []
    for model in operator.models:
        made = schema(version_at(operator.spec, model.domain_version))
        expected = ExpectedModel(spec=operator.spec, model=model, lowering=lowering, cell=cell, schema=made)
        proto = one_node(expected)
        check(proto, expected)
        exported.append(Exported(name=model.name, proto=proto))
    manifest.write(paths, operator.name, lowering, cell, exported)
