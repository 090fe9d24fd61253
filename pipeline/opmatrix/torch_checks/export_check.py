"""The "nodes" part of register: export with the compiled library loaded, which must give the same nodes as without."""

from __future__ import annotations

from dataclasses import replace

from opmatrix.declaration.load import Operator
from opmatrix.declaration.register_models import sampled
from opmatrix.declaration.schema_versions import version_at
from opmatrix.declaration.torch_signature import has_onnx_types, has_string_lists, model_dtypes
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.exporters import export
from opmatrix.export.generated_modules import load_generated
from opmatrix.matrix.cells import TORCH_EXPORTERS, Cell, opsets_of
from opmatrix.matrix.dtypes import why_not_written
from opmatrix.project.paths import Paths
from opmatrix.testdata.case_arrays import case_arrays
from opmatrix.torch_checks.opcheck_samples import complete
from opmatrix.torch_library import features
from opmatrix.torch_library.call import torch_minor
from opmatrix.torch_library.case_tensors import tensors
from opmatrix.torch_library.load_library import LoadedLibrary

_OPSET = 18  # of both exporters


def results(layout: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, str]]:
    """Export one model with each exporter, through the gates of every export. Raises ExportError."""
    operator = replace(operator, models=sampled(operator))
    generated = load_generated(layout, operator.name)
    sample = next(complete(layout, operator, loaded, generated), None)
    model = sample.model if sample else operator.models[0]
    case = model.cases[0]  # export traces it; the sample may have a size of 1 in a dynamic dimension
    traced = tuple(tensors(operator.spec, model, case, case_arrays(operator.spec, model, case)))
    found = []
    for exporter in TORCH_EXPORTERS:
        if not (legal := opsets_of(exporter, torch_minor())):
            found.append({"model": operator.name, "check": exporter, "skipped": features.DYNAMO.skip_reason})
            continue
        if why := why_not_written(exporter, model_dtypes(operator.spec, model), torch_minor()):
            found.append({"model": operator.name, "check": exporter, "skipped": why})
            continue
        opset = min(max(operator.spec.min_opset, _OPSET), legal.stop - 1)
        cell = Cell(torch=torch_minor(), exporter=exporter, opset=opset, ort="0.0")
        if exporter == "legacy" and (has_string_lists(operator.spec) or has_onnx_types(operator.spec)):
            reason = f"skipped: {operator.unavailable_reason(cell)}"
            found.append({"model": operator.name, "check": exporter, "skipped": reason})
            continue
        expected = ExpectedModel(
            spec=operator.spec,
            model=model,
            lowering="custom",
            cell=cell,
            schema=generated.schema.schema(version_at(operator.spec, model.domain_version)),
        )
        export(expected, generated, traced)
        found.append({"model": str(expected), "check": "export"})
    return found
