"""The declared signature of a model: name, dtype and shape of every graph input and output.

What an exported model must contain: the gates compare each model with it. Needs onnx alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, defs, helper

from opmatrix.basics.errors import ExportError
from opmatrix.declaration.models import GraphInput, graph_inputs, graph_outputs, output_name
from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.project.cells import Cell, why_unsupported
from opmatrix.signature.signature import attribute_values, dtype_of
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import shapes_by_input
from opmatrix.spec import DType, Lowering, Model, OpSpec, shape_of

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
