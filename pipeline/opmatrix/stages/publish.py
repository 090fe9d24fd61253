"""Keep what an operator promises: the schema of each of its versions, and a model of it with its data.

The one stage that writes beside the declaration, and only when a person asks for it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from opmatrix.declaration import placeholders, published_schema, schema_versions
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import case_arguments, graph_inputs
from opmatrix.errors import UsageError
from opmatrix.export.published_model import published_model
from opmatrix.files import write_bytes, write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Model, given, shape_of
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.case_arrays import case_arrays, reference_attributes
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.testdata.onnx_dataset import DataSet

LARGE = 4096  # elements; a case with more is kept only where there is none with less


def run(layout: Paths, operator: Operator) -> None:
    """Write ops/<name>/published/<version>/ for each version that has none yet.

    What is there already is as declared, else the operator would not have been loaded; only versions of the domain may
    have come to it. Raises UsageError where an operator has no node or is a placeholder, or a version no model to keep;
    DataError.
    """
    spec = operator.spec
    if spec.uses:
        others = " and ".join(spec.uses)
        raise UsageError(f"{spec.name} has no node of its own: publish {others}, whose nodes it is written as")
    if told := placeholders.lines_in_code(layout, [spec.name]):
        raise UsageError(
            f"{spec.name} is a placeholder, and what is published is for good: {placeholders.MARK} stands in lines of\n"
            f"{told}\nFill them in and remove the words. Nothing was written."
        )
    chosen = {v: _chosen(operator, v) for v in schema_versions.versions(spec) if v not in operator.published}
    for version in schema_versions.versions(spec):
        folder = layout.published(spec.name, version)
        path, text = folder / "schema.json", published_schema.text(published_schema.schema(spec, version))
        shown = path.relative_to(layout.root)
        if version in chosen:
            _keep(layout, operator, version, *chosen[version])
        elif path.read_text() == text:
            print(f"{shown}: published, and as declared")
            continue
        write_text(path, text)
        print(f"wrote {shown}")


def _chosen(operator: Operator, version: int) -> tuple[Model, Case]:
    """Return the first small case of the first model that has this schema, of one that uses what came with it first."""
    spec = operator.spec
    came = {a.name for a in spec.attributes if a.since == version}
    models = [
        m
        for m in operator.models
        if not m.unsupported and not m.around and schema_versions.version_at(spec, m.domain_version) == version
    ]
    models.sort(key=lambda m: not came & m.attributes.keys())
    whole = [(m, c) for m in models for c in m.cases if _elements(c)]
    if not whole:
        raise UsageError(
            f"{spec.name} has no case to keep for version {version}: add a model with "
            f"domain_version={schema_versions.at(spec, version).onnx.versions[0]} to ops/{spec.name}/cases.py"
        )
    return min(whole, key=lambda found: max(_elements(found[1]), LARGE))


def _elements(case: Case) -> int:
    """Return how many numbers the inputs have together; none where one of them is empty."""
    sizes = [math.prod(shape_of(tensor)) for name in case.inputs for tensor in given(case, name)]
    return sum(sizes) if all(sizes) else 0


def _keep(layout: Paths, operator: Operator, version: int, model: Model, case: Case) -> None:
    """Write the model of a version, and its inputs and outputs."""
    spec, folder = operator.spec, layout.published(operator.name, version)
    plain = replace(model, names={})
    arrays = case_arrays(spec, plain, case)
    fed = graph_inputs(spec, plain, case)
    attributes = reference_attributes(spec, plain)
    outputs = Reference(layout, spec)(tuple(case_arguments(spec, case, arrays)), attributes)
    tensors: dict[str, list[Array]] = {}
    for feed, array in zip(fed, arrays, strict=True):
        tensors.setdefault(feed.part.name, []).append(array)
    schema = published_schema.schema(spec, version)
    proto = published_model(schema, tensors, outputs, attributes=attributes, opset=spec.min_opset)
    data = DataSet(
        inputs={feed.name: array for feed, array in zip(fed, arrays, strict=True)},
        outputs=dict(zip(schema["outputs"], outputs, strict=True)),
    )
    onnx_dataset.write(layout.published_data(spec.name, version), data)
    path = layout.published_model(spec.name, version)
    write_bytes(path, proto.SerializeToString(deterministic=True))
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"wrote {path.relative_to(layout.root)} of the case {case.name!r}: {size:,} bytes with data")
