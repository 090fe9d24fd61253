"""Sessions of models whose inputs or outputs are bfloat16, float8, int4 or uint4, which ONNX Runtime's Python interface
does not take.

NumPy has none of them, and no ONNX Runtime from 1.16 to 1.31 takes an array of ml_dtypes' or returns one. So a model
gets nodes that cast at these edges. float32 has a value for each of their values, so that both casts keep it.

Imports nothing of opmatrix: wheel/use_unpacked.py loads it by its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

Array = NDArray[Any]
# The name in ml_dtypes, and the first opset whose Cast takes it; for int4 and uint4, QuantizeLinear and
# DequantizeLinear, because ONNX Runtime 1.21 casts neither, and has both as storage.
_TYPES = {
    "tensor(bfloat16)": ("bfloat16", TensorProto.BFLOAT16, 13),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", TensorProto.FLOAT8E4M3FN, 19),
    "tensor(float8e5m2)": ("float8_e5m2", TensorProto.FLOAT8E5M2, 19),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", TensorProto.FLOAT8E4M3FNUZ, 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", TensorProto.FLOAT8E5M2FNUZ, 19),
    "tensor(int4)": ("int4", TensorProto.INT4, 21),
    "tensor(uint4)": ("uint4", TensorProto.UINT4, 21),
}
_EDGE = "/float32"  # the end of the name of an input or output that is cast


def needs_casts(session: Any) -> bool:
    """Return whether an input or output of a session of ONNX Runtime is bfloat16, float8 or int4."""
    return any(value.type in _TYPES for value in (*session.get_inputs(), *session.get_outputs()))


def with_float_edges(model: bytes | str, session: Any) -> bytes:
    """Return a model, given as bytes or as its path, with casts where its session has such inputs and outputs.

    A model of custom nodes alone may import an opset in which Cast does not know the dtype; it then imports a newer
    one. Raises ValueError where nodes of ONNX's own do not allow that.
    """
    made = onnx.load_model(Path(model)) if isinstance(model, str) else ModelProto.FromString(model)
    types = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
    dtype, _, needed = max((_TYPES[t] for t in types.values() if t in _TYPES), key=lambda row: row[2])
    for entry in made.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < needed:
            if any(node.domain in ("", "ai.onnx") for node in made.graph.node):
                raise ValueError(
                    f"the model has {dtype} inputs or outputs at opset {entry.version}, and NumPy has no {dtype}: "
                    f"Cast knows it from opset {needed} on. Export the model at a newer opset"
                )
            entry.version = needed
    nodes = [*made.graph.node]
    for values, into in ((made.graph.input, True), (made.graph.output, False)):
        for value in values:
            if (found := _TYPES.get(types.get(value.name, ""))) is None:
                continue
            inner, edge = value.name, value.name + _EDGE
            if value.type.tensor_type.elem_type:
                made.graph.value_info.add().CopyFrom(value)
            value.name, value.type.tensor_type.elem_type = edge, TensorProto.FLOAT
            casts = _casts(inner, edge, found[0], found[1], into=into)
            nodes = [*casts, *nodes] if into else [*nodes, *casts]
    if not any(entry.domain in ("", "ai.onnx") for entry in made.opset_import):
        made.opset_import.append(helper.make_opsetid("", needed))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    content: bytes = made.SerializeToString()
    return content


def _casts(inner: str, edge: str, dtype: str, element: int, *, into: bool) -> Iterator[NodeProto]:
    """Yield the nodes that make the value `inner`, of an element type, from `edge`, of float32, or the reverse."""
    ends = ([edge], [inner]) if into else ([inner], [edge])
    if dtype.endswith("int4"):
        yield helper.make_node("Constant", [], [scale := edge + "/scale"], value_float=1.0)
        if into:
            yield helper.make_node("QuantizeLinear", [edge, scale], [inner], output_dtype=element)
        else:
            yield helper.make_node("DequantizeLinear", [inner, scale], [edge])
    elif into and dtype.startswith("float8"):  # for which alone ONNX Runtime takes the attribute
        yield helper.make_node("Cast", *ends, to=element, saturate=0)  # an infinity stays one
    else:
        yield helper.make_node("Cast", *ends, to=element if into else TensorProto.FLOAT)


class CastSession:
    """Runs the session of a model with such casts. It takes and returns arrays of ml_dtypes."""

    def __init__(self, session: Any, *, cast: Any) -> None:
        """`session` is that of the model as it is, `cast` that of the model with casts."""
        self.get_outputs = session.get_outputs
        self._session = cast
        self._in = {v.name: np.dtype(_TYPES[v.type][0]) for v in session.get_inputs() if v.type in _TYPES}
        self._out = [_TYPES[v.type][0] if v.type in _TYPES else None for v in session.get_outputs()]

    def run(self, output_names: None, feed_inputs: Mapping[str, Array], /) -> Sequence[Array]:
        """Run the session as that of the model without casts."""
        found = self._session.run(None, self.cast(feed_inputs))
        return [o.astype(getattr(ml_dtypes, dtype)) if dtype else o for o, dtype in zip(found, self._out, strict=True)]

    def cast(self, feed_inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return inputs that `run` takes as well, and need no cast in each run."""
        return dict(self._fed(name, array) for name, array in feed_inputs.items())

    def _fed(self, name: str, array: Array) -> tuple[str, Array]:
        """Return the input of the cast; of an array of another dtype than the input has, what ONNX Runtime rejects."""
        return (name + _EDGE, array.astype(np.float32)) if array.dtype == self._in.get(name) else (name, array)
