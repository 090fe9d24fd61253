"""Sessions of models whose inputs or outputs are bfloat16, which ONNX Runtime's Python interface does not take.

NumPy has no bfloat16, and no ONNX Runtime from 1.16 to 1.31 takes an array of ml_dtypes' or returns one. So a model
gets Cast nodes at these edges. float32 has a value for each bfloat16, so that both casts keep it.

Imports nothing of opmatrix: wheel/use_unpacked.py loads it by its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

Array = NDArray[Any]
CAST_OPSET = 13  # the first whose Cast takes bfloat16
_TYPE = "tensor(bfloat16)"
_EDGE = "/float32"  # the end of the name of an input or output that is cast


def has_bfloat16(session: Any) -> bool:
    """Return whether an input or output of a session of ONNX Runtime is bfloat16."""
    return any(value.type == _TYPE for value in (*session.get_inputs(), *session.get_outputs()))


def with_float_edges(model: bytes | str, session: Any) -> bytes:
    """Return a model, given as bytes or as its path, with casts where its session has bfloat16 inputs and outputs.

    A model of custom nodes alone may import an opset in which Cast does not know bfloat16; it then imports a newer one.
    Raises ValueError where nodes of ONNX's own do not allow that.
    """
    made = onnx.load_model(Path(model)) if isinstance(model, str) else ModelProto.FromString(model)
    for entry in made.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < CAST_OPSET:
            if any(node.domain in ("", "ai.onnx") for node in made.graph.node):
                raise ValueError(
                    f"the model has bfloat16 inputs or outputs at opset {entry.version}, and NumPy has no bfloat16: "
                    f"Cast knows it from opset {CAST_OPSET} on. Export the model at a newer opset"
                )
            entry.version = CAST_OPSET
    types = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
    nodes = [*made.graph.node]
    for values, into in ((made.graph.input, True), (made.graph.output, False)):
        for value in values:
            if types.get(value.name) != _TYPE:
                continue
            inner, edge = value.name, value.name + _EDGE
            if value.type.tensor_type.elem_type:
                made.graph.value_info.add().CopyFrom(value)
            value.name, value.type.tensor_type.elem_type = edge, TensorProto.FLOAT
            ends = ([edge], [inner]) if into else ([inner], [edge])
            cast = helper.make_node("Cast", *ends, to=TensorProto.BFLOAT16 if into else TensorProto.FLOAT)
            nodes.insert(0 if into else len(nodes), cast)
    if not any(entry.domain in ("", "ai.onnx") for entry in made.opset_import):
        made.opset_import.append(helper.make_opsetid("", CAST_OPSET))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    content: bytes = made.SerializeToString()
    return content


class BFloat16Session:
    """Runs the session of a model with such casts. It takes and returns arrays of ml_dtypes' bfloat16."""

    def __init__(self, session: Any, *, cast: Any) -> None:
        """`session` is that of the model as it is, `cast` that of the model with casts."""
        self.get_outputs = session.get_outputs
        self._session = cast
        self._cast = [output.type == _TYPE for output in session.get_outputs()]

    def run(self, output_names: None, feed_inputs: Mapping[str, Array], /) -> Sequence[Array]:
        """Run the session as that of the model without casts."""
        fed = {
            **{name: a for name, a in feed_inputs.items() if a.dtype != ml_dtypes.bfloat16},
            **{name + _EDGE: a.astype(np.float32) for name, a in feed_inputs.items() if a.dtype == ml_dtypes.bfloat16},
        }
        found = self._session.run(None, fed)
        return [o.astype(ml_dtypes.bfloat16) if cast else o for o, cast in zip(found, self._cast, strict=True)]
