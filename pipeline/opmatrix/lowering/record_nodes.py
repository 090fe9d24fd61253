"""Record the ONNX nodes that a lowering emits, for the gates of an export and for function bodies. Needs onnx alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from opmatrix.errors import ExportError
from opmatrix.lowering.call_lowering import Lowered
from opmatrix.lowering.graph import Emitter, Value
from opmatrix.spec import DType
from opmatrix.testdata.dtypes import numpy_dtype


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A value of the recorded graph. Only the operator's inputs have a dtype and a shape; None is a dynamic size."""

    name: str
    dtype: DType | None = None
    shape: tuple[int | None, ...] | None = None


class NodeGraph(Emitter):
    """`Graph` that collects the nodes."""

    def __init__(self, opset: int, versions: Mapping[str, int]) -> None:
        super().__init__(opset, versions)
        self.nodes: list[NodeProto] = []

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        domain, op_type, _, written = self._node(name, len(inputs), attributes)
        made = tuple(Tensor(name=f"v{len(self.nodes)}_{n}") for n in range(outputs))
        node = helper.make_node(
            op_type, [i.name if i else "" for i in inputs], [t.name for t in made], domain=domain or None
        )
        for a in written:
            value = numpy_helper.from_array(np.asarray(a.value)) if a.letter == "t" else a.value
            kind = AttributeProto.AttributeType.Value(a.type)
            node.attribute.append(helper.make_attribute(a.name, value, attr_type=kind))
        self.nodes.append(node)
        return made if outputs > 1 else made[0]

    def constant(self, value: ArrayLike, dtype: DType) -> Value:
        return self.op("Constant", value_t=np.asarray(value, numpy_dtype(dtype)))

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise ExportError("g.dtype() is known for the operator's own inputs alone")
        return value.dtype  # type: ignore[no-any-return]  # any tensor-like value

    def rank(self, value: Value) -> int:
        return len(self._shape(value))

    def _size(self, value: Value, axis: int) -> int | None:
        return self._shape(value)[axis]

    def _shape(self, value: Value) -> tuple[int | None, ...]:
        if value.shape is None:
            raise ExportError("g.rank() and g.dim() are known for the operator's own inputs alone")
        return value.shape  # type: ignore[no-any-return]  # any tensor-like value


def record(
    lowered: Lowered, arguments: Sequence[Any], *, opset: int, versions: Mapping[str, int], outputs: Sequence[str]
) -> tuple[NodeProto, ...]:
    """Return the nodes that a lowering emits for `arguments`, each tensor a `Tensor`; `outputs` name its results."""
    g = NodeGraph(opset, versions)
    results = lowered(g, arguments)
    renamed = {result.name: name for result, name in zip(results, outputs, strict=True)}
    made = {name for node in g.nodes for name in node.output}
    if len(renamed) != len(outputs) or not renamed.keys() <= made:
        raise ExportError(f"the lowering {lowered.lowering!r} returns an input, or one value twice; emit an Identity")
    for node in g.nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    return tuple(g.nodes)
