"""What an exported model must contain: name, dtype and shape of every graph input and output, and its nodes. The gates
compare each model with it. Needs onnx alone.

Models of one node are built from it, for operators without a torch operator, and functions with standard nodes are
added to a model with a custom node, so that a runtime without the kernel can run it
(https://github.com/onnx/onnx/blob/main/docs/IR.md#functions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper

from opmatrix.basics.errors import ExportError, one_line
from opmatrix.data.arrays import numpy_dtype
from opmatrix.data.reference import tensor_array
from opmatrix.declaration.models import (
    GraphInput,
    graph_inputs,
    graph_outputs,
    node_inputs,
    node_outputs,
    output_name,
    output_names,
)
from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.project.cells import Cell, ir_version, why_unsupported
from opmatrix.signature import versions
from opmatrix.signature.signature import attribute_values, dtype_of, onnx_kind, onnx_name, onnx_value
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import shapes_by_input
from opmatrix.spec import AttributeKind, DType, Lowering, Model, OpSpec, shape_of

Shape = tuple[int | str | None, ...]
"""Sizes: a number if static, else the name of a dynamic axis, or None for a dynamic size without a name."""


@dataclass(frozen=True, kw_only=True)
class ValueInfo:
    """One graph input or output."""

    name: str
    dtype: DType
    shape: Shape

    @property
    def axes(self) -> dict[int, str]:
        """The names of its dynamic axes, by index."""
        return {index: size for index, size in enumerate(self.shape) if isinstance(size, str)}


@dataclass(frozen=True, kw_only=True)
class GraphSignature:
    """All graph inputs and outputs, in the declared order. torch.export has another class of this name."""

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]


def graph_signature(spec: OpSpec, model: Model) -> GraphSignature:
    """Return the signature that a model must have in every exporter and opset. Raises ExportError where attributes or
    inputs give no shape of an output."""
    shapes: list[tuple[GraphInput, Shape]] = []
    for feed in graph_inputs(spec, model, model.cases[0]):
        sizes = shape_of(feed.tensor)
        axes = model.dynamic.get(feed.part.name, (None,) * len(sizes))
        named = (size if axis is None else axis for size, axis in zip(sizes, axes, strict=True))
        shapes.append((feed, tuple(named)))
    first = shapes_by_input((feed.part, shape) for feed, shape in shapes)
    known = Known(spec=spec, shapes=first, attributes=attribute_values(spec, model))
    outputs = []
    for output in graph_outputs(spec, model):
        try:
            computed = known.output(output)
        except ValueError as error:
            raise ExportError(f"output {output.name!r} has no shape: {error}") from error
        assert computed is not None, "every input has its shape"
        dtype = dtype_of(output.type, model.types)
        outputs.append(ValueInfo(name=output_name(model, output), dtype=dtype, shape=tuple(computed)))
    inputs = (ValueInfo(name=f.name, dtype=dtype_of(f.part.type, model.types), shape=shape) for f, shape in shapes)
    return GraphSignature(inputs=tuple(inputs), outputs=tuple(outputs))


def element_dtype(element: int) -> str:
    """Return the dtype of an element type of ONNX, or "" if it is not set."""
    if element == TensorProto.STRING:
        return "string"
    return str(helper.tensor_dtype_to_np_dtype(element)) if element else ""


@dataclass(frozen=True, kw_only=True)
class ExpectedModel:
    """One model of an operator in one cell, as declared, and the operator's ONNX schema.

    `lowered_nodes` are the nodes of the lowering; without them the declared node is expected. `used_schemas` are the
    ONNX schemas of the operators whose nodes the lowering emits.
    """

    spec: OpSpec
    model: Model
    lowering: Lowering
    cell: Cell
    schema: defs.OpSchema
    lowered_nodes: tuple[NodeProto, ...] = ()
    used_schemas: tuple[defs.OpSchema, ...] = ()

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.lowering}-{self.model.name}@{self.cell.export_name}"

    @property
    def node(self) -> str:
        return f"{self.spec.onnx.domain}::{self.spec.onnx.op_type}"

    @property
    def signature(self) -> GraphSignature:
        return graph_signature(self.spec, self.model)

    @property
    def schemas(self) -> tuple[defs.OpSchema, ...]:
        return (self.schema, *self.used_schemas)

    @property
    def versions(self) -> Mapping[str, int]:
        """The version of each custom domain that the model may import, by domain."""
        if self.lowering == "decomposed":
            return {}
        own = {self.spec.onnx.domain: self.model.domain_version}
        return {s.domain: s.since_version for s in self.used_schemas} | own

    @property
    def custom_nodes(self) -> Counter[str]:
        """The custom nodes of the model: the declared one, or those of the used operators that the lowering emits."""
        if self.lowering == "decomposed":
            return Counter()
        if not self.spec.uses:
            return Counter({self.node: 1})
        used = {f"{s.domain}::{s.name}" for s in self.used_schemas}
        return Counter(name for name in map(qualified, self.lowered_nodes) if name in used)

    @property
    def standard_nodes(self) -> frozenset[str]:
        """The op types of the standard nodes that the lowering emits."""
        return frozenset(n.op_type for n in self.lowered_nodes if n.domain in STANDARD)


def check_legal(spec: OpSpec, cell: Cell) -> None:
    """Raise ExportError for a cell in which `spec` cannot be exported."""
    if reason := why_unsupported(cell.exporter, cell.opset, cell.torch):
        raise ExportError(f"{spec.name}@{cell.export_name}: {reason}. Choose a legal opset")
    if cell.opset < spec.min_opset:
        raise ExportError(
            f"{spec.name}@{cell.export_name}: its minimum opset is {spec.min_opset}; "
            f"choose a higher opset, or lower min_opset in ops/{spec.name}/spec.py"
        )


def one_node(expected: ExpectedModel) -> ModelProto:
    """Return the model with the declared node alone, with all attributes and the declared inputs and outputs."""
    spec, declared = expected.spec, expected.signature
    node = helper.make_node(
        spec.onnx.op_type,
        list(node_inputs(spec, expected.model)),
        list(node_outputs(spec, expected.model)),
        domain=spec.onnx.domain,
    )
    node.attribute.extend(attributes(spec, expected.model))
    inputs, outputs = (
        [value_info(v.name, numpy_dtype(v.dtype), v.shape) for v in values]
        for values in (declared.inputs, declared.outputs)
    )
    version = expected.model.domain_version
    return model_of(node, inputs, outputs, name=spec.name, opset=expected.cell.opset, version=version)


def model_of(
    node: NodeProto,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    name: str,
    opset: int,
    version: int,
) -> ModelProto:
    """Return the model of a custom node; `version` is that of its domain, `name` that of the graph.

    The IR version is the lowest that the opset allows, so that an old ONNX Runtime can read it.
    """
    return helper.make_model(
        helper.make_graph([node], name, inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(node.domain, version)],
        ir_version=ir_version("node", opset),
        producer_name="opmatrix",
    )


def attributes(spec: OpSpec, model: Model) -> Iterator[AttributeProto]:
    """Yield the attributes of a model's node, defaults included."""
    values = attribute_values(spec, model)
    for attribute in versions.attributes_at(spec, model.domain_version):
        if (value := values.get(attribute.name, attribute.default)) is not None:
            if attribute.kind == "tensor":
                made = numpy_helper.from_array(tensor_array(attribute, value))
                yield helper.make_attribute(onnx_name(attribute), made)
                continue
            value = onnx_value(attribute, value)
            yield make_attribute(onnx_name(attribute), attribute.kind, value)


def make_attribute(name: str, kind: AttributeKind, value: Any) -> AttributeProto:
    """Return an attribute of a declared kind; an empty list has its type too."""
    return helper.make_attribute(name, value, attr_type=AttributeProto.AttributeType.Value(onnx_kind(kind)))


def value_info(name: str, dtype: np.dtype[Any], shape: Shape) -> ValueInfoProto:
    """Return a graph input or output."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


MIN_IR_VERSION = 8  # the first that has functions


def with_function(proto: ModelProto, expected: ExpectedModel, body: Sequence[NodeProto]) -> ModelProto:
    """Return `proto` with a function for the declared node. `body` has the names of the graph's inputs and outputs.

    The body contains the attribute values of this model and is valid for no other. Raises ExportError if onnx's checker
    rejects the result.
    """
    model = ModelProto()
    model.CopyFrom(proto)
    model.ir_version = max(model.ir_version, MIN_IR_VERSION)
    spec, declared = expected.spec, expected.signature
    function = helper.make_function(
        spec.onnx.domain,
        spec.onnx.op_type,
        [v.name for v in declared.inputs],
        list(output_names(spec, expected.model)),
        body,
        [helper.make_opsetid("", expected.cell.opset)],
        [a.name for a in versions.attributes_at(spec, expected.model.domain_version)],
    )
    model.functions.append(function)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"{expected}: onnx.checker refuses it with a function body: {one_line(error)}") from error
    return model
