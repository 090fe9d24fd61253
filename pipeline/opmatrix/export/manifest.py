"""Write the models of an export, and its manifest: their nodes, inputs and outputs as JSON data. Needs onnx alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import AttributeProto, ModelProto, ValueInfoProto, helper

from opmatrix.export.graph_json import graph_json
from opmatrix.export.signature import element_dtype
from opmatrix.files import write_bytes, write_text
from opmatrix.matrix.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A model that passed the gates, or the reason why the lowering does not support it, or with `lacks_dtype` why this
    torch does not."""

    name: str
    proto: ModelProto | None = None
    unsupported: str = ""
    lacks_dtype: bool = False
    ignored_attributes: Sequence[str] = ()


def write(layout: Paths, operator: str, lowering: Lowering, cell: Cell, exported: Iterable[Exported]) -> None:
    """Write model.onnx of each, then the manifest and the graphs that the report draws. A refused model is written
    without a graph."""
    of = (operator, lowering, cell)
    models: dict[str, Any] = {}
    pictures: dict[str, Any] = {}
    for one in exported:
        path = layout.model(*of, one.name)
        if one.proto is None:
            write_refused(path, one.unsupported)
            models[one.name] = {"refused": one.unsupported, "opset_imports": {}, "nodes": []}
            if one.lacks_dtype:
                models[one.name]["lacks_dtype"] = True
            continue
        content = one.proto.SerializeToString(deterministic=True)
        write_bytes(path, content)
        models[one.name], pictures[one.name] = describe(one.proto, content), graph_json(one.proto)
        if one.ignored_attributes:
            models[one.name]["dropped"] = one.ignored_attributes
    manifest = {"op": operator, "lowering": lowering, "cell": cell.export_name, "models": models}
    write_text(layout.manifest(*of), json.dumps(manifest, indent=1) + "\n")
    write_text(layout.graph_drawings(*of), json.dumps(pictures, separators=(",", ":")) + "\n")


def write_refused(path: Path, reason: str) -> None:
    """Write a model without a graph, so that a step writes the same files whether or not a lowering refuses a model.
    ONNX Runtime loads no such file."""
    write_bytes(path, ModelProto(doc_string=reason).SerializeToString(deterministic=True))


def describe(proto: ModelProto, content: bytes) -> dict[str, Any]:
    """Return nodes, opset imports, inputs and outputs of a model, and the hash of its file."""
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "ir_version": proto.ir_version,
        "opset_imports": {o.domain: o.version for o in sorted(proto.opset_import, key=lambda o: o.domain)},
        "inputs": [_value_info(v) for v in proto.graph.input],
        "outputs": [_value_info(v) for v in proto.graph.output],
        "nodes": [
            {
                "domain": n.domain,
                "op_type": n.op_type,
                "inputs": list(n.input),
                "outputs": list(n.output),
                "attributes": {  # values as strings: JSON has no NaN and no infinities
                    a.name: {
                        "type": AttributeProto.AttributeType.Name(a.type),
                        "value": repr(helper.get_attribute_value(a)),
                    }
                    for a in sorted(n.attribute, key=lambda a: a.name)
                },
            }
            for n in proto.graph.node
        ],
    }


def _value_info(value: ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    return {
        "name": value.name,
        "dtype": element_dtype(tensor.elem_type),
        "shape": [d.dim_param or d.dim_value for d in tensor.shape.dim],
    }
