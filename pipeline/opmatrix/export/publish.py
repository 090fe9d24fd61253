"""Publish an operator: the schema of each of its versions, and a model of each with its data.

The only stage that writes into ops/<name>/, and only when it is run by hand.
"""

from __future__ import annotations

import json
from dataclasses import replace

from onnx import ModelProto, NodeProto, TensorProto, helper

from opmatrix.basics.errors import UsageError
from opmatrix.basics.files import write_bytes, write_text
from opmatrix.data import dataset, truth
from opmatrix.data.case_arrays import case_arrays, described, elements, reference_attributes
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.declaration import published, source_files
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments, graph_inputs, node_inputs, output_names
from opmatrix.export.signature import attributes, model_of, value_info
from opmatrix.project.dtypes import element_name
from opmatrix.project.paths import Paths
from opmatrix.signature import versions as schema_versions
from opmatrix.sizes.variadic import of_model
from opmatrix.spec import Case, Input, Model, OpSpec, Output

LARGE = 4096  # elements; a case with more is published only where there is no smaller one


def run(paths: Paths, operator: Operator) -> None:
    """Write ops/<name>/published/<version>/ for each version that has none yet.

    A published schema fits the declaration, else the operator would not load, but may lack new versions of the domain
    and new dtypes, which are added. Raises UsageError for an operator without a node, a placeholder, or a version
    without a model; DataError.
    """
    spec = operator.spec
    if spec.uses:
        others = " and ".join(spec.uses)
        raise UsageError(f"{spec.name} has no node of its own: publish {others}, whose nodes it is written as")
    if lines := source_files.lines_in_code(paths, [spec.name]):
        raise UsageError(
            f"cannot publish {spec.name}, because a published version never changes, and {source_files.MARK}s are left "
            f"in the lines\n{lines}\n{source_files.REMEDY}. Nothing was written."
        )
    versions = schema_versions.versions(spec)
    chosen = {v: _chosen(operator, v) for v in versions if v not in operator.published}
    for version in versions:
        folder = paths.published(spec.name, version)
        path = folder / "schema.json"
        shown = path.relative_to(paths.root)
        if version in chosen:
            text = published.text(published.schema(spec, version))
            _write_model(paths, operator, version, *chosen[version])
        else:
            text = published.text(published.updated(json.loads(path.read_text(encoding="utf-8")), spec))
            if path.read_text(encoding="utf-8") == text:
                print(f"{shown}: published, and as declared")
                continue
        write_text(path, text)
        print(f"wrote {shown}")


def _chosen(operator: Operator, version: int) -> tuple[Model, Case]:
    """Return a model with this schema, preferably with an attribute new in it, and its first small case."""
    spec = operator.spec
    new = {a.name for a in spec.attributes if a.since == version}
    usable = (m for m in operator.models if not m.unsupported and not m.around)
    models = [m for m in usable if schema_versions.version_at(spec, m.domain_version) == version]
    models.sort(key=lambda m: not new & m.attributes.keys())
    cases = [(m, c) for m in models for c in m.cases if _elements(c) and described(c)]
    if not cases:
        raise UsageError(
            f"{spec.name} has no case to keep for version {version}: add a model with "
            f"domain_version={schema_versions.at(spec, version).onnx.versions[0]} to ops/{spec.name}/cases.py"
        )
    return min(cases, key=lambda pair: max(_elements(pair[1]), LARGE))


def _elements(case: Case) -> int:
    """Return the number of elements of all inputs together; 0 where one of them is empty."""
    sizes = elements(case)
    return sum(sizes) if all(sizes) else 0


def _write_model(paths: Paths, operator: Operator, version: int, model: Model, case: Case) -> None:
    """Write the model of a version, and its inputs and outputs."""
    spec, folder = operator.spec, paths.published(operator.name, version)
    plain = replace(model, names={}, cases=(case,))
    arrays = case_arrays(spec, plain, case)
    arguments = tuple(case_arguments(spec, case, arrays))
    attributes = reference_attributes(spec, plain)
    outputs = truth.evaluate(Reference(paths, spec), spec, plain.types, arguments, attributes).outputs
    names = [feed.name for feed in graph_inputs(spec, plain, case)]
    data = DataSet(
        inputs=dict(zip(names, arrays, strict=True)),
        outputs=dict(zip(output_names(spec, plain), outputs, strict=True)),
    )
    dataset.write(paths.published_data(spec.name, version), data)
    path = paths.published_model(spec.name, version)
    write_bytes(path, _published_model(spec, plain, version, data).SerializeToString(deterministic=True))
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"wrote {path.relative_to(paths.root)} of the case {case.name!r}: {size:,} bytes with data")


def _published_model(spec: OpSpec, model: Model, version: int, data: DataSet) -> ModelProto:
    """Return the model of the node of a version: with the sizes of the tensors, and the lowest opset and IR version,
    which every ONNX Runtime reads. It has casts, as exports have them, where the node has another dtype than torch."""
    node = helper.make_node(
        spec.onnx.op_type, list(node_inputs(spec, model)), list(data.outputs), domain=spec.onnx.domain
    )
    node.attribute.extend(attributes(spec, model))
    fed, made = (
        [value_info(name, array.dtype, array.shape) for name, array in tensors.items()]
        for tensors in (data.inputs, data.outputs)
    )
    proto = model_of(node, fed, made, name=spec.onnx.op_type, opset=spec.min_opset, version=version)
    parts: dict[str, Input | Output] = {f.name: f.part for f in graph_inputs(spec, model, model.cases[0])}
    parts |= zip(data.outputs, of_model(spec, model).outputs, strict=True)
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for names, casts in ((node.input, before), (node.output, after)):
        for index, name in enumerate(names):
            if name and (to := parts[name].onnx_type):
                names[index] = inner = f"{name}/{to}"
                ends = ([name], [inner]) if casts is before else ([inner], [name])
                dtype = to if casts is before else parts[name].type
                casts.append(helper.make_node("Cast", *ends, to=TensorProto.DataType.Value(element_name(dtype))))
    del proto.graph.node[:]
    proto.graph.node.extend([*before, node, *after])
    return proto
