"""What an exported model is judged by. Needs onnx alone."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import defs

from pipeline.errors import ExportError
from pipeline.matrix import Cell, illegal
from pipeline.models.value_info import Signature, signature
from pipeline.spec import Lowering, Model, OpSpec


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a model must be: the declaration, the ONNX schema that follows from it, and the cell."""

    spec: OpSpec
    model: Model
    lowering: Lowering
    cell: Cell
    schema: defs.OpSchema

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.lowering}-{self.model.name}@{self.cell.export_name}"

    @property
    def node(self) -> str:
        return f"{self.spec.onnx.domain}::{self.spec.onnx.op_type}"

    @property
    def signature(self) -> Signature:
        return signature(self.spec, self.model)


def check_legal(spec: OpSpec, cell: Cell) -> None:
    """Raise ExportError for a cell in which `spec` cannot be exported at all."""
    if reason := illegal(cell.exporter, cell.opset):
        raise ExportError(f"{spec.name}@{cell.export_name}: {reason}. Choose a legal opset")
    if cell.opset < spec.min_opset:
        raise ExportError(
            f"{spec.name}@{cell.export_name}: its minimum opset is {spec.min_opset}; "
            f"choose a higher opset, or lower min_opset in ops/{spec.name}/spec.py"
        )
