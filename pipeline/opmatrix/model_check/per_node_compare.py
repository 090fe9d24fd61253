"""Compare each node of a model with its reference, for `doit check`. Never imports torch.

Every inner value becomes an output of the model, a few nodes at a time. onnx.reference, with reference.py for the
project's operators, evaluates each node on the inputs that it had in ONNX Runtime. So only the node that makes an error
differs: the nodes after it compute correctly from wrong inputs. Of a standard node that differs, float64_judge decides.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from opmatrix.errors import VerifyError, one_line
from opmatrix.files import write_bytes
from opmatrix.model_check import finding
from opmatrix.model_check.custom_nodes import random_nodes
from opmatrix.model_check.external_data import is_readable
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.float64_judge import Difference, Judgement, judge
from opmatrix.model_check.graph_walk import captured, node_label, walk
from opmatrix.model_check.one_node import for_reference, one_node
from opmatrix.model_check.run_model import PLAIN, compare_value
from opmatrix.model_check.type_text import format_range
from opmatrix.ort_checks.reference_evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, call
from opmatrix.project.paths import DATA_SET
from opmatrix.spec import OpSpec, Tolerance
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import Comparison
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.testdata.onnx_dataset import DataSet

BATCH = 50  # nodes per session: the values of all nodes of a large model would not fit into memory
Operators = Sequence[tuple[OpSpec, Reference]]


@dataclass(frozen=True, kw_only=True)
class NodeComparison:
    """The comparison of a node's worst output with the reference, or why there is no reference; neither for
    a constant and for random values.

    `expected` are the outputs of the reference, `judged_in` is the precision in which a reference.py was evaluated.
    `judgement`: of a standard node that differs from onnx.reference.
    """

    node: NodeProto
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None
    judged_in: str = ""
    judgement: Judgement | None = None
    skipped: str = ""

    @property
    def wrong(self) -> bool:
        """Whether ONNX Runtime is wrong: one implementation alone does not decide that of a standard node."""
        return self.differs and (self.judgement is None or self.judgement.outcome == "wrong")

    @property
    def differs(self) -> bool:
        """Whether the reference's result is another one, not only another rounding."""
        rounded = self.judgement is not None and self.judgement.outcome == "rounded"
        return self.comparison is not None and not self.comparison.ok and not rounded

    def __str__(self) -> str:
        """Return node, output and first differing index, and the ranges of its inputs."""
        given = "; ".join(f"{name} {format_range(value)}" for name, value in self.inputs.items())
        first = f", first at {self.comparison.first}" if self.comparison and self.comparison.first else ""
        judged = f", compared in {self.judged_in}" if self.judged_in else ""
        judged += f"; {self.judgement.text}" if self.judgement else ""
        return f"{node_label(self.node)}: {self.comparison}{first}{judged}. Its inputs: {given or 'none'}"


def compare_nodes(
    model: ModelProto,
    fed: Mapping[str, Array],
    runtime: OrtSessions,
    operators: Operators,
    limits: Mapping[str, Tolerance],
    *,
    own: bool = False,
) -> Iterator[NodeComparison]:
    """Yield the comparison of every node, in the graph's order; an If or a Loop is compared with its subgraphs.

    With `own`, only those of `operators`, and those that have such a node in a subgraph.
    """
    constants = {i.name: onnx_dataset.to_array(i) for i in model.graph.initializer if is_readable(i)}
    outside = {*constants, *fed, ""}
    random = [id(node) for node in random_nodes(model)]
    nodes = [node for node in model.graph.node if not own or _has_operator(node, operators)]
    for start in range(0, len(nodes), BATCH):
        batch = nodes[start : start + BATCH]
        wanted = {name for node in batch for name in (*node.input, *captured(node), *node.output)} - outside
        found, lacking = _available_values(model, sorted(wanted), fed, runtime)
        values = {**constants, **fed, **found}
        for node in batch:
            needed = (*node.input, *sorted(captured(node)), *node.output)
            if any(id(inner) in random for inner in walk([node])):
                yield NodeComparison(node=node, inputs={})
            elif why := next((f"ONNX Runtime gives no {n!r}: {lacking[n]}" for n in needed if n in lacking), ""):
                yield NodeComparison(node=node, inputs={}, skipped=why)
            else:
                yield _compare(node, values, model, operators, limits)


def _available_values(
    model: ModelProto, wanted: Sequence[str], fed: Mapping[str, Array], runtime: OrtSessions
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return inner values, and why ONNX Runtime does not give the others, such as texts that are not UTF-8."""
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
    try:
        content = widened.SerializeToString()
    except (EncodeError, ValueError) as error:  # each implementation of protobuf has its own
        raise VerifyError(f"with its data the model is larger than the 2 GB of protobuf ({error})") from error
    session = runtime.sessions(content, settings=[PLAIN])[PLAIN]
    return dict(zip(wanted, call(session, fed), strict=True))


def differs_inlined(
    path: str, inlined: ModelProto, fed: Mapping[str, Array], runtime: OrtSessions, limits: Mapping[str, Tolerance]
) -> Iterator[Finding]:
    """Yield the first output of the model in `path` that ONNX Runtime computes otherwise than without functions."""
    names = [o.name for o in inlined.graph.output]
    theirs = inner_values(inlined, names, fed, runtime)
    ours = call(runtime.sessions(path, settings=[PLAIN])[PLAIN], fed)
    for name, value in zip(names, ours, strict=True):
        found = compare_value(name, value, theirs[name], limits)
        if not found.ok:
            text = f"ONNX Runtime computes other outputs where the nodes of the functions replace their calls: {found}"
            yield finding.wrong("agrees", text, "Inline the functions: onnx.inliner.inline_local_functions(model)")
            return


def passed_through(
    model: ModelProto, fed: Mapping[str, Array], runtime: OrtSessions, limits: Mapping[str, Tolerance]
) -> Iterator[Comparison]:
    """Yield the comparison of each output that no node makes, but that is an input or a constant."""
    known = {i.name: onnx_dataset.to_array(i) for i in model.graph.initializer if is_readable(i)} | dict(fed)
    names = [o.name for o in model.graph.output if o.name in known]
    for name, value in inner_values(model, names, fed, runtime).items():
        yield compare_value(name, value, known[name], limits)


def _compare(
    node: NodeProto, values: Mapping[str, Any], model: ModelProto, operators: Operators, limits: Mapping[str, Tolerance]
) -> NodeComparison:
    taken = {n: values[n] for n in dict.fromkeys((*node.input, *sorted(captured(node)))) if n}
    if node.op_type == "Constant":
        return NodeComparison(node=node, inputs=taken)
    try:
        return _compared(node, taken, values, model, operators, limits)
    except VerifyError as error:
        return NodeComparison(node=node, inputs=taken, skipped=str(error))
    except Exception as error:  # of this code: it says nothing about the node, and the others are compared
        traceback.print_exc()
        why = f"opmatrix cannot compare it: {type(error).__name__}: {one_line(error)}"
        return NodeComparison(node=node, inputs=taken, skipped=why)


def _compared(
    node: NodeProto,
    taken: Mapping[str, Any],
    values: Mapping[str, Any],
    model: ModelProto,
    operators: Operators,
    limits: Mapping[str, Tolerance],
) -> NodeComparison:
    """Return the comparison with the reference. Raises VerifyError where there is none, or it fails."""
    evaluated, judged_in = _evaluate(node, taken, model, operators)
    expected = {name: want if isinstance(want, list | dict) else _as_array(want) for name, want in evaluated.items()}
    several = len(node.output) > 1
    arrays = {name: want for name, want in expected.items() if not isinstance(want, list | dict)}
    found = [
        replace(compare_value(name, values[name], want, limits), subject=f"output {name!r}: " if several else "")
        for name, want in arrays.items()
    ]
    if not found:
        return NodeComparison(node=node, inputs=taken)
    worst = max(found, key=lambda c: (bool(c.problem), c.tolerance_used))
    judgement = None
    if not worst.ok and not _has_operator(node, operators):
        actual = {name: values[name] for name in arrays}
        judgement = judge(
            Difference(node=node, model=model, taken=taken, actual=actual, expected=arrays, limits=limits)
        )
    return NodeComparison(
        node=node, inputs=taken, expected=expected, comparison=worst, judged_in=judged_in, judgement=judgement
    )


def _as_array(value: Any) -> Array:
    """Return a value as an array, texts as objects, as ONNX Runtime has them."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _has_operator(node: NodeProto, operators: Operators) -> bool:
    """Return whether a node, or one in its subgraphs, is of an operator of this project."""
    custom = {(spec.onnx.domain, spec.onnx.op_type) for spec, _ in operators}
    return any((n.domain, n.op_type) in custom for n in walk([node]))


def _evaluate(
    node: NodeProto, taken: Mapping[str, Any], model: ModelProto, operators: Operators
) -> tuple[dict[str, Any], str]:
    """Return the outputs of a node's reference, and in which precision a reference.py was evaluated, "" for onnx's own.
    Raises VerifyError where there is no reference, or it fails."""
    outputs = [name for name in node.output if name]
    run = ReferenceRun(for_reference(node, model, [*taken], outputs), operators)
    return dict(zip(outputs, call(run, taken), strict=True)), str(run.judge or "")


def write_one_node(found: NodeComparison, model: ModelProto, folder: Path) -> Path | None:
    """Write a node as a model with test_data_set_0; return its path, or None where a value is no tensor."""
    values = (*found.inputs.values(), *found.expected.values())
    if not all(isinstance(v, np.ndarray) for v in values):
        return None
    infos = (
        [helper.make_tensor_value_info(n, numpy_helper.from_array(a).data_type, a.shape) for n, a in of.items()]
        for of in (found.inputs, found.expected)
    )
    path = folder / "model.onnx"
    write_bytes(path, one_node(found.node, model, *infos).SerializeToString(deterministic=True))
    onnx_dataset.write(folder / f"{DATA_SET}0", DataSet(inputs=found.inputs, outputs=found.expected))
    return path
