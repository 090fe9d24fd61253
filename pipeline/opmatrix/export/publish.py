"""Publish an operator: the schema of each of its versions, and a model of each with its data.

The only stage that writes into ops/<name>/, and only when it is run by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper

from opmatrix.basics.errors import UsageError
from opmatrix.basics.files import write_bytes, write_text
from opmatrix.data import dataset, truth
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays, described, reference_attributes
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.declaration import published, source_files
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments, graph_inputs
from opmatrix.export.signature import make_attribute, model_of, value_info
from opmatrix.project.dtypes import element_name
from opmatrix.project.paths import Paths
from opmatrix.signature import versions as schema_versions
from opmatrix.spec import AttributeKind, Case, Model, given, shape_of

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
    return min(cases, key=lambda found: max(_elements(found[1]), LARGE))


def _elements(case: Case) -> int:
    """Return the number of elements of all inputs together; 0 where one of them is empty."""
    sizes = [math.prod(shape_of(tensor)) for name in case.inputs for tensor in given(case, name)]
    return sum(sizes) if all(sizes) else 0


def _write_model(paths: Paths, operator: Operator, version: int, model: Model, case: Case) -> None:
    """Write the model of a version, and its inputs and outputs."""
    spec, folder = operator.spec, paths.published(operator.name, version)
    plain = replace(model, names={})
    arrays = case_arrays(spec, plain, case)
    fed = graph_inputs(spec, plain, case)
    attributes = reference_attributes(spec, plain)
    arguments = tuple(case_arguments(spec, case, arrays))
    outputs = truth.evaluate(Reference(paths, spec), spec, plain.types, arguments, attributes).outputs
    tensors: dict[str, list[Array]] = {}
    for feed, array in zip(fed, arrays, strict=True):
        tensors.setdefault(feed.part.name, []).append(array)
    schema = published.schema(spec, version)
    proto = _published_model(schema, tensors, outputs, attributes=attributes, opset=spec.min_opset)
    data = DataSet(
        inputs={feed.name: array for feed, array in zip(fed, arrays, strict=True)},
        outputs=dict(zip(_output_names(schema, len(outputs)), outputs, strict=True)),
    )
    dataset.write(paths.published_data(spec.name, version), data)
    path = paths.published_model(spec.name, version)
    write_bytes(path, proto.SerializeToString(deterministic=True))
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"wrote {path.relative_to(paths.root)} of the case {case.name!r}: {size:,} bytes with data")


def _published_model(
    schema: Mapping[str, Any],
    inputs: Mapping[str, Sequence[Array]],
    outputs: Sequence[Array],
    *,
    attributes: Mapping[str, Any],
    opset: int,
) -> ModelProto:
    """Return the model of a published schema for the tensors of each input. `attributes` may omit defaults.

    It has the sizes of the tensors, and the lowest opset and IR version, which every ONNX Runtime reads.
    """
    fed: dict[str, Array] = {}
    names: list[str] = []
    for name, declared in schema["inputs"].items():
        named = {f"{name}_{n}" if declared.get("variadic") else name: a for n, a in enumerate(inputs.get(name, ()))}
        fed |= named
        names += list(named) or ([] if declared.get("variadic") else [""])
    while not names[-1] and not any(declared.get("variadic") for declared in schema["inputs"].values()):
        names.pop()
    made = _output_names(schema, len(outputs))
    node = helper.make_node(schema["op_type"], names, made, domain=schema["domain"])
    for name, declared in schema["attributes"].items():
        value = attributes.get(name, declared.get("default"))
        if not declared.get("torch_only") and value is not None:
            # A published schema has floats as strings, with all digits.
            kind: AttributeKind = declared["kind"]
            convert = {"float": float, "int": int, "bool": int, "string": str}[kind.removesuffix("s")]
            value = [*map(convert, value)] if kind.endswith("s") else convert(value)
            node.attribute.append(make_attribute(name, kind, value))
    graph_inputs, graph_outputs = (
        [value_info(name, array.dtype, array.shape) for name, array in values]
        for values in (fed.items(), zip(made, outputs, strict=True))
    )
    version, name = schema["since_version"], schema["op_type"]
    model = model_of(node, graph_inputs, graph_outputs, name=name, opset=opset, version=version)
    return _with_casts(model, schema) if any("onnx_type" in p for p in _parts(schema).values()) else model


def _parts(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs and outputs of a published schema."""
    return {**schema["inputs"], **schema["outputs"]}


def _with_casts(model: ModelProto, schema: Mapping[str, Any]) -> ModelProto:
    """Return a model of one node with casts, as exports have them, where the node has another dtype than torch."""
    node = NodeProto()
    node.CopyFrom(model.graph.node[0])
    parts = _parts(schema)
    before: list[NodeProto] = []
    after: list[NodeProto] = []
    for names, casts in ((node.input, before), (node.output, after)):
        for index, name in enumerate(names):
            declared = parts.get(name) or parts[name.rpartition("_")[0]] if name else {}
            if to := declared.get("onnx_type"):
                names[index] = inner = f"{name}/{to}"
                ends = ([name], [inner]) if casts is before else ([inner], [name])
                dtype = to if casts is before else declared["type"]
                casts.append(helper.make_node("Cast", *ends, to=TensorProto.DataType.Value(element_name(dtype))))
    del model.graph.node[:]
    model.graph.node.extend([*before, node, *after])
    return model


def _output_names(schema: Mapping[str, Any], count: int) -> list[str]:
    """Return the names of the outputs of a published schema, with a number for each tensor of a variadic one."""
    *fixed, last = schema["outputs"]
    if not schema["outputs"][last].get("variadic"):
        return [*fixed, last]
    return [*fixed, *(f"{last}_{n}" for n in range(count - len(fixed)))]
