"""The ONNX models of a row: the declared node, or what the lowering emits, and one node of a peer. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from opmatrix.bench.spec import OnnxNode
from opmatrix.declaration.schema_versions import version_at
from opmatrix.errors import ExportError
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import generated_module, load_generated, lowered_nodes
from opmatrix.export.one_node_model import one_node, value_info
from opmatrix.matrix.cells import Cell, ir_version
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering, Model, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.dtypes import numpy_dtype

OPSET = 18
"""The opset of the models of rows, if the operator does not need a newer one."""


def row_model(paths: Paths, spec: OpSpec, model: Model, lowering: Lowering, *, ort: str) -> ModelProto:
    """Return the model of a row with the nodes of a lowering. Raises ExportError, with the reason for a lowering that
    does not support the row."""
    opset = max(OPSET, spec.min_opset, model.min_opset.get(lowering, 0))
    expected = ExpectedModel(
        spec=spec,
        model=model,
        lowering=lowering,
        cell=Cell(torch=None, exporter="node", opset=opset, ort=ort),
        # Of an operator of ONNX alone, this is the only module.
        schema=generated_module(paths, spec.name, "schema").schema(version_at(spec, model.domain_version)),
    )
    if lowering == "custom" and not spec.uses:
        return one_node(expected)
    generated = load_generated(paths, spec.name)
    expected = replace(expected, used_schemas=generated.used_schemas(model))
    try:
        nodes = lowered_nodes(expected, generated)
    except ExportError as error:
        raise ExportError(str(error).removeprefix(f"{expected}: ")) from error
    signature = expected.signature
    inputs, outputs = (
        [value_info(v.name, numpy_dtype(v.dtype), v.shape) for v in values]
        for values in (signature.inputs, signature.outputs)
    )
    return _model(nodes, inputs, outputs, opset=opset, versions=expected.versions)


def peer_model(peer: OnnxNode, arrays: Sequence[Array]) -> ModelProto:
    """Return the model of a peer's node with inputs of these dtypes; ONNX Runtime infers the types of its outputs."""
    names, results = [f"input_{n}" for n in range(len(arrays))], [f"output_{n}" for n in range(peer.results)]
    node = helper.make_node(peer.op_type, names, results, domain=peer.domain or None)
    for attribute, value in peer.attributes.items():
        node.attribute.append(helper.make_attribute(attribute, value))
    inputs = [value_info(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    versions = {peer.domain: peer.version} if peer.domain else {}
    return _model([node], inputs, outputs, opset=peer.opset, versions=versions)


def _model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    opset: int,
    versions: Mapping[str, int],
) -> ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in versions.items())]
    return helper.make_model(
        helper.make_graph(list(nodes), "row", list(inputs), list(outputs)),
        opset_imports=imports,
        ir_version=ir_version("node", opset),
        producer_name="opmatrix",
    )
