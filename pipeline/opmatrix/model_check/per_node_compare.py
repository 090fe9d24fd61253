"""Find the node that computes something else than its reference does. Never torch.

Every inner value of the model is made an output, a few nodes at a time, and each node is evaluated once more by
onnx.reference, with reference.py for the operators of this project, from the very numbers that it was given in ONNX
Runtime. So an error is found where it is made: what comes behind it computes rightly with wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.errors import VerifyError
from opmatrix.files import write_bytes
from opmatrix.model_check.graph_walk import called, captured, within
from opmatrix.model_check.model_inputs import spread
from opmatrix.model_check.run_model import PLAIN, compare_value
from opmatrix.ort_checks.reference_evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.spec import OpSpec, Tolerance
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import Comparison
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.testdata.onnx_dataset import DATA_SET, DataSet

BATCH = 50  # nodes whose values are looked at in one session: all of a large model would not fit into memory
# What these give is drawn anew each time, or is nothing but a constant.
_SKIPPED = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Constant"}
)
Operators = Sequence[tuple[OpSpec, Reference]]


@dataclass(frozen=True, kw_only=True)
class NodeComparison:
    """One node, held against its reference: its worst output, or why it could not be held; neither where it need not.

    `expected` are the outputs of the reference.
    """

    node: NodeProto
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None
    skipped: str = ""

    @property
    def wrong(self) -> bool:
        return self.comparison is not None and not self.comparison.ok

    def __str__(self) -> str:
        """Return node, output and first differing index, with the ranges of what it was given."""
        given = "; ".join(f"{name} {spread(value)}" for name, value in self.inputs.items())
        first = f", first at {self.comparison.first}" if self.comparison and self.comparison.first else ""
        return f"{called(self.node)}: {self.comparison}{first}. Its inputs: {given or 'none'}"


def nodewise(
    model: ModelProto,
    fed: Mapping[str, Array],
    runtime: OrtSessions,
    operators: Operators,
    limits: Mapping[str, Tolerance],
    *,
    own: bool = False,
) -> Iterator[NodeComparison]:
    """Yield every node of the graph, in its order, held against its reference.

    With `own` only those of `operators`, and those that hold such within. What an If or a Loop holds is held with it.
    """
    ours = {(spec.onnx.domain, spec.onnx.op_type) for spec, _ in operators}
    constants = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    outside = {*constants, *fed, ""}
    nodes = [node for node in model.graph.node if not own or any((n.domain, n.op_type) in ours for n in within([node]))]
    for start in range(0, len(nodes), BATCH):
        batch = nodes[start : start + BATCH]
        wanted = {name for node in batch for name in (*node.input, *captured(node), *node.output)} - outside
        values = {**constants, **fed, **_values(model, sorted(wanted), fed, runtime)}
        for node in batch:
            yield _hold(node, values, model, operators, limits)


def _values(model: ModelProto, wanted: Sequence[str], fed: Mapping[str, Array], runtime: OrtSessions) -> dict[str, Any]:
    """Return inner values as ONNX Runtime has them. Nothing is optimised: a fused node has none within."""
    shown = ModelProto()
    shown.CopyFrom(model)
    before = {o.name: o for o in model.graph.output}
    del shown.graph.output[:]
    shown.graph.output.extend(before.get(name) or ValueInfoProto(name=name) for name in wanted)
    if not wanted:
        return {}
    session = runtime.sessions(shown.SerializeToString(), settings=[PLAIN])[PLAIN]
    return dict(zip(wanted, call(session, fed), strict=True))


def _hold(
    node: NodeProto, values: Mapping[str, Any], model: ModelProto, operators: Operators, limits: Mapping[str, Tolerance]
) -> NodeComparison:
    taken = {n: values[n] for n in dict.fromkeys((*node.input, *sorted(captured(node)))) if n}
    if node.op_type in _SKIPPED:
        return NodeComparison(node=node, inputs=taken)
    try:
        expected = _evaluate(node, taken, model, operators)
    except VerifyError as error:
        return NodeComparison(node=node, inputs=taken, skipped=str(error))
    several = len(node.output) > 1
    found = [
        replace(
            compare_value(name, values[name], np.asarray(want), limits), subject=f"output {name!r}: " if several else ""
        )
        for name, want in expected.items()
        if not isinstance(want, list | dict)
    ]
    if not found:
        return NodeComparison(node=node, inputs=taken)
    worst = max(found, key=lambda c: (bool(c.problem), c.tolerance_used))
    return NodeComparison(node=node, inputs=taken, expected=expected, comparison=worst)


def _evaluate(node: NodeProto, taken: Mapping[str, Any], model: ModelProto, operators: Operators) -> dict[str, Any]:
    """Return the outputs of one node by its reference. Raises VerifyError where there is none, or it fails."""
    outputs = [name for name in node.output if name]
    alone = _alone(node, model, [ValueInfoProto(name=n) for n in taken], [ValueInfoProto(name=n) for n in outputs])
    return dict(zip(outputs, call(ReferenceRun(alone, operators), taken), strict=True))


def _alone(
    node: NodeProto, model: ModelProto, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
) -> ModelProto:
    """Return a model of one node, with the versions and the functions of the model that it is from."""
    graph = helper.make_graph([node], "node", inputs, outputs)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    alone.functions.extend(model.functions)
    return alone


def write_alone(found: NodeComparison, model: ModelProto, folder: Path) -> Path | None:
    """Write a node as a model of its own, with what it was given and what its reference makes of that beside it.

    Returns the model's path, or None where a value is no tensor.
    """
    values = (*found.inputs.values(), *found.expected.values())
    if not all(isinstance(v, np.ndarray) for v in values):
        return None
    inputs, outputs = (
        [helper.make_tensor_value_info(n, numpy_helper.from_array(a).data_type, a.shape) for n, a in of.items()]
        for of in (found.inputs, found.expected)
    )
    path = folder / "model.onnx"
    write_bytes(path, _alone(found.node, model, inputs, outputs).SerializeToString(deterministic=True))
    onnx_dataset.write(folder / f"{DATA_SET}0", DataSet(inputs=found.inputs, outputs=found.expected))
    return path
