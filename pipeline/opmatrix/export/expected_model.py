"""What an exported model must contain: the gates compare each model with it. Needs onnx alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onnx import NodeProto, defs

from opmatrix.errors import ExportError
from opmatrix.export.signature import GraphSignature, graph_signature
from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.matrix.cells import Cell, why_unsupported
from opmatrix.spec import Lowering, Model, OpSpec


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
