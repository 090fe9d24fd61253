"""Export with the compiled library in place: the nodes must be those of an export without it."""

from __future__ import annotations

from pipeline.layout import Layout
from pipeline.library import torch_versions
from pipeline.library.samples import complete
from pipeline.library.torch_call import torch_minor
from pipeline.library.torch_library import Loaded
from pipeline.load import Operator
from pipeline.matrix import LEGAL_OPSETS, TORCH_EXPORTERS, Cell
from pipeline.models.demand import Demand
from pipeline.models.exporters import export
from pipeline.models.glue import load_glue


def results(layout: Layout, operator: Operator, loaded: Loaded) -> list[dict[str, str]]:
    """Export one model through each exporter; the gates judge it as any other. Raises ExportError."""
    glue = load_glue(layout, operator.name)
    sample = next(complete(layout, operator, loaded, glue))
    opset = max(operator.spec.min_opset, LEGAL_OPSETS["dynamo"].start if torch_versions.DYNAMO.here else 17)
    found = []
    for exporter in TORCH_EXPORTERS:
        if exporter == "dynamo" and not torch_versions.DYNAMO.here:
            found.append({"model": operator.name, "check": exporter, "skipped": torch_versions.DYNAMO.skipped})
            continue
        cell = Cell(torch=torch_minor(), exporter=exporter, opset=opset, ort="0.0")
        demand = Demand(
            spec=operator.spec, model=sample.model, lowering="custom", cell=cell, schema=glue.schema.schema()
        )
        export(demand, glue, sample.tensors)
        found.append({"model": str(demand), "check": "export"})
    return found
