"""The values of a model's nodes from ONNX Runtime, a few nodes at a time, so that work grows with the nodes. No torch.

A session has a part of the nodes. Its inputs are what earlier parts computed, which is kept until its last use. So each
node runs once, and only the values of one part and those that are still needed are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from opmatrix.addons.check.graph_walk import captured
from opmatrix.addons.check.repair import is_readable
from opmatrix.addons.check.run_model import PLAIN
from opmatrix.basics.errors import VerifyError
from opmatrix.data.arrays import Array
from opmatrix.data.dataset import to_array
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, call

BATCH = 50  # nodes of the first part, and of a session of the whole model
_MOST = 400  # nodes of a part
_BYTES = 1 << 28  # of the values of a part, about

Part = tuple[Sequence[NodeProto], Mapping[str, Any], Mapping[str, str]]  # nodes, values, why others lack


def taken_names(node: NodeProto) -> list[str]:
    """Return the names of a node's inputs and of the outer values of its subgraphs."""
    return [name for name in dict.fromkeys((*node.input, *sorted(captured(node)))) if name]


def node_values(model: ModelProto, fed: Mapping[str, Array], runtime: OrtSessions) -> Iterator[Part]:
    """Yield all nodes, a part at a time, with the values of their inputs and outputs. Raises VerifyError."""
    nodes = model.graph.node
    constants = {t.name: t for t in model.graph.initializer if is_readable(t)}
    last = {name: index for index, node in enumerate(nodes) for name in taken_names(node)}
    known: dict[str, Any] = dict(fed)
    start, count, in_parts = 0, BATCH, len(constants) == len(model.graph.initializer)
    lacking: dict[str, str] = {}
    while start < len(nodes):
        part = nodes[start : start + count]
        made = {name for node in part for name in node.output if name}
        used = list(dict.fromkeys(name for node in part for name in taken_names(node)))
        before = [name for name in used if name not in made and name not in constants]
        values = {name: to_array(constants[name]) for name in used if name in constants}
        in_parts = in_parts and all(isinstance(known.get(name), np.ndarray) for name in before)
        if in_parts:
            try:
                found = _of_part(model, part, {n: known[n] for n in before}, constants, runtime)
                found |= {name: value for name, value in known.items() if name in before}
            except VerifyError:
                in_parts = False  # such as nodes that are not sorted: ONNX Runtime may take the model as a whole
        if not in_parts:
            wanted = {*used, *made} - {*constants, *fed}
            found, lacking = _available_values(model, sorted(wanted), fed, runtime)
            found = {**fed, **found}
        values |= found
        yield part, values, lacking
        size = sum(v.nbytes for name, v in found.items() if name in made and isinstance(v, np.ndarray))
        start += len(part)
        known |= {name: found[name] for name in made if name in found}
        known = {name: value for name, value in known.items() if last.get(name, -1) >= start}
        count = min(_MOST, max(1, min(2 * count, len(part) * _BYTES // max(size, 1)))) if in_parts else BATCH


def _of_part(
    model: ModelProto,
    part: Sequence[NodeProto],
    taken: Mapping[str, Array],
    constants: Mapping[str, Any],
    runtime: OrtSessions,
) -> dict[str, Any]:
    """Return the outputs of some nodes in a session of their own."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in taken.items()
    ]
    made = [name for node in part for name in node.output if name]
    used = dict.fromkeys(chain.from_iterable(map(taken_names, part)))
    graph = helper.make_graph(part, "part", inputs, [ValueInfoProto(name=name) for name in made])
    graph.initializer.extend(constants[name] for name in used if name in constants)
    whole = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return _called(whole, made, taken, runtime)


def _available_values(
    model: ModelProto, wanted: Sequence[str], fed: Mapping[str, Array], runtime: OrtSessions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return inner values, and why ONNX Runtime does not give the others, such as strings that are not UTF-8."""
    try:
        return inner_values(model, wanted, fed, runtime), {}
    except RefusedError as error:
        if len(wanted) == 1:
            return {}, {wanted[0]: str(error)}
    half = len(wanted) // 2
    (first, lacking), (second, more) = (
        _available_values(model, part, fed, runtime) for part in (wanted[:half], wanted[half:])
    )
    return first | second, lacking | more


def inner_values(
    model: ModelProto, wanted: Sequence[str], fed: Mapping[str, Array], runtime: OrtSessions
) -> dict[str, Any]:
    """Return inner values from ONNX Runtime without optimisation, since a fused node would hide them. Raises
    VerifyError, RefusedError where ONNX Runtime gives them not."""
    if not wanted:
        return {}
    widened = ModelProto()
    widened.CopyFrom(model)
    before = {o.name: o for o in model.graph.output}
    del widened.graph.output[:]
    widened.graph.output.extend(before.get(name) or ValueInfoProto(name=name) for name in wanted)
    return _called(widened, wanted, fed, runtime)


def _called(model: ModelProto, wanted: Sequence[str], fed: Mapping[str, Array], runtime: OrtSessions) -> dict[str, Any]:
    try:
        content = model.SerializeToString()
    except (EncodeError, ValueError) as error:  # each implementation of protobuf has its own
        raise VerifyError(f"with its data the model is larger than the 2 GB of protobuf ({error})") from error
    session = runtime.sessions(content, settings=[PLAIN], large=True)[PLAIN]
    return dict(zip(wanted, call(session, fed), strict=True))
