"""Compare each node of a model with its reference, for `doit check`. Never imports torch.

The values are those of ONNX Runtime, a few nodes at a time, so that work grows with the nodes: a session has a part of
the nodes. Its inputs are what earlier parts computed, which is kept until its last use. So each node runs once, and
only the values of one part and those that are still needed are in memory. onnx.reference, with reference.py for the
project's operators, evaluates each node on the inputs that it had in ONNX Runtime. So only the node that makes an error
differs: the nodes after it compute correctly from wrong inputs. Of a standard node that differs, float64_judge decides.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import ModelProto, NodeProto, ValueInfoProto

from opmatrix.addons.check import parts as time_limits
from opmatrix.addons.check.float64_judge import Difference, Judgement, judge
from opmatrix.addons.check.graph_walk import (
    captured,
    for_reference,
    format_range,
    model_of,
    node_label,
    subgraphs,
    typed,
    walk,
)
from opmatrix.addons.check.nodes import random_nodes
from opmatrix.addons.check.repair import is_readable
from opmatrix.addons.check.run_model import PLAIN, compare_value
from opmatrix.basics import finding
from opmatrix.basics.errors import VerifyError, one_line
from opmatrix.basics.files import write_bytes
from opmatrix.basics.finding import Finding
from opmatrix.basics.interrupts import TooSlow, cpu_limit
from opmatrix.data import dataset
from opmatrix.data.arrays import Array
from opmatrix.data.compare import Comparison
from opmatrix.data.dataset import DataSet, to_array
from opmatrix.data.reference import Reference
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, call
from opmatrix.project.paths import DATA_SET
from opmatrix.spec import OpSpec, Tolerance

BATCH = 50  # nodes of the first part, and of a session of the whole model
_MOST = 400  # nodes of a part
_BYTES = 1 << 28  # of the values of a part, about

Part = tuple[Sequence[NodeProto], Mapping[str, Any], Mapping[str, str]]  # nodes, values, why others lack
_KEPT = 2  # differing nodes of each kind whose arrays are kept, for the messages
_RESERVE = 8  # a part of the time, which is kept for what follows the nodes
_RUNS = 1000  # evaluators that are kept
Operators = Sequence[tuple[OpSpec, Reference]]


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
    made = [name for node in part for name in node.output if name]
    whole = model_of(part, model, typed(taken), [ValueInfoProto(name=name) for name in made])
    used = dict.fromkeys(chain.from_iterable(map(taken_names, part)))
    whole.graph.initializer.extend(constants[name] for name in used if name in constants)
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


@dataclass(frozen=True, kw_only=True)
class NodeComparison:
    """The comparison of a node's worst output with the reference, or why there is no reference; neither for
    a constant and for random values.

    `expected` are the outputs of the reference, `judged_in` is the precision in which a reference.py was evaluated.
    `judgement`: of a standard node that differs from onnx.reference. `failed`: the exception of opmatrix, instead.
    """

    node: NodeProto
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any] = field(default_factory=dict)
    comparison: Comparison | None = None
    judged_in: str = ""
    judgement: Judgement | None = None
    skipped: str = ""
    failed: str = ""

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
    drawing = list(random_nodes(model))  # which keeps the objects, and so their ids
    random = {id(node) for node in drawing}
    references = References(model, operators, limits)
    kept: Counter[str] = Counter()
    reserve, left = time_limits.seconds_left() / _RESERVE, [*reversed(model.graph.node)]
    for part, values, lacking in node_values(model, fed, runtime):
        for node in part:
            if time_limits.seconds_left() < reserve:
                late = "the time of the model is over; --seconds gives it more"
                rest = (n for n in reversed(left) if not own or _has_operator(n, operators))
                yield from (NodeComparison(node=n, inputs={}, skipped=late) for n in rest)
                return
            left.pop()
            if own and not _has_operator(node, operators):
                continue
            if random and any(id(inner) in random for inner in walk([node])):
                found = NodeComparison(node=node, inputs={})
            elif names := [n for n in (*taken_names(node), *node.output) if n in lacking]:
                why = f"ONNX Runtime gives no {names[0]!r}: {lacking[names[0]]}"
                found = NodeComparison(node=node, inputs={}, skipped=why)
            else:
                found = _compare(node, values, references)
            # Of most nodes the arrays are not needed any more.
            outcome = found.judgement.outcome if found.judgement else str(found.differs)
            kept[outcome] += found.differs
            yield found if found.differs and kept[outcome] <= _KEPT else replace(found, inputs={}, expected={})


def differs_inlined(
    path: str, inlined: ModelProto, fed: Mapping[str, Array], runtime: OrtSessions, limits: Mapping[str, Tolerance]
) -> Iterator[Finding]:
    """Yield the first output of the model in `path` that ONNX Runtime computes otherwise than without functions."""
    names = [o.name for o in inlined.graph.output]
    theirs = inner_values(inlined, names, fed, runtime)
    try:
        ours = call(runtime.sessions(path, settings=[PLAIN])[PLAIN], fed)
    except RefusedError:  # which is a finding of the run
        return
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
    known = {i.name: to_array(i) for i in model.graph.initializer if is_readable(i)} | dict(fed)
    names = [o.name for o in model.graph.output if o.name in known]
    for name, value in inner_values(model, names, fed, runtime).items():
        yield compare_value(name, value, known[name], limits)


def _compare(node: NodeProto, values: Mapping[str, Any], references: References) -> NodeComparison:
    taken = {name: values[name] for name in taken_names(node)}
    if node.op_type == "Constant":
        return NodeComparison(node=node, inputs=taken)
    seconds = max(0.001, min(time_limits.NODE_SECONDS, time_limits.seconds_left() / 4))
    try:
        with cpu_limit(seconds):
            return _compared(node, taken, values, references)
    except TooSlow:
        slow = f"its reference takes more than {seconds:.2g} CPU s; --seconds gives it a fourth of more"
        return NodeComparison(node=node, inputs=taken, skipped=slow)
    except VerifyError as error:
        return NodeComparison(node=node, inputs=taken, skipped=str(error))
    except Exception as error:  # of this code: it says nothing about the node, and the others are compared
        traceback.print_exc()
        return NodeComparison(node=node, inputs=taken, failed=f"{type(error).__name__}: {one_line(error)}")


def _compared(
    node: NodeProto, taken: Mapping[str, Any], values: Mapping[str, Any], references: References
) -> NodeComparison:
    """Return the comparison with the reference. Raises VerifyError where there is none, or it fails."""
    model, operators, limits = references.model, references.operators, references.limits
    evaluated, judged_in = references.evaluate(node, taken)
    if node.op_type == "Optional":  # onnx.reference has a value of it as a list of one
        evaluated = {n: want[0] if isinstance(want, list) and want else want for n, want in evaluated.items()}
    expected = {name: want if _is_no_tensor(want) else _as_array(want) for name, want in evaluated.items()}
    several = len(node.output) > 1
    if not _has_operator(node, operators):  # a value that nobody takes may be one that ONNX does not describe
        expected = {name: want for name, want in expected.items() if name in references.taken} or expected
    found = [
        replace(compare_value(name, values[name], want, limits), subject=f"output {name!r}: " if several else "")
        for name, want in expected.items()
    ]
    if not found:
        return NodeComparison(node=node, inputs=taken)
    worst = max(found, key=lambda c: (bool(c.problem), c.tolerance_used))
    judgement = None
    if not worst.ok and not _has_operator(node, operators):
        actual = {name: values[name] for name in expected}
        difference = Difference(node=node, model=model, taken=taken, actual=actual, expected=expected, limits=limits)
        no_tensor = any(map(_is_no_tensor, (*actual.values(), *expected.values())))
        unknown = Judgement(outcome="unknown", text="its outputs are no tensors to evaluate in float64")
        judgement = unknown if no_tensor else judge(difference)
    return NodeComparison(
        node=node, inputs=taken, expected=expected, comparison=worst, judged_in=judged_in, judgement=judgement
    )


def _is_no_tensor(value: Any) -> bool:
    return isinstance(value, list | dict) or value is None


def _as_array(value: Any) -> Array:
    """Return a value as an array, strings as objects, as ONNX Runtime has them."""
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _has_operator(node: NodeProto, operators: Operators) -> bool:
    custom = {(spec.onnx.domain, spec.onnx.op_type) for spec, _ in operators}
    return any((n.domain, n.op_type) in custom for n in walk([node]))


class References:
    """Evaluates nodes with their references. Nodes that differ in their names alone share an evaluator."""

    def __init__(self, model: ModelProto, operators: Operators, limits: Mapping[str, Tolerance]) -> None:
        self.model, self.operators, self.limits = model, operators, limits
        self.taken = {output.name for output in model.graph.output}
        self.taken.update(*map(taken_names, model.graph.node))
        self._runs: dict[bytes, ReferenceRun] = {}

    def evaluate(self, node: NodeProto, taken: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the outputs of a node's reference, and in which precision a reference.py was evaluated, "" for onnx's
        own. Raises VerifyError where there is no reference, or it fails."""
        outputs = [name for name in node.output if name]
        if any(True for _ in subgraphs(node)) or self.operators:
            run = ReferenceRun(for_reference(node, self.model, [*taken], outputs), self.operators)
            return dict(zip(outputs, call(run, taken), strict=True)), str(run.judge or "")
        names = {name: f"i{n}" for n, name in enumerate(taken)}
        made = [f"o{n}" if name else "" for n, name in enumerate(node.output)]
        same = NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute, overload=node.overload)
        same.input.extend(names.get(name, "") for name in node.input)
        same.output.extend(made)
        key = same.SerializeToString(deterministic=True)
        if len(self._runs) > _RUNS:
            self._runs.clear()
        if key not in self._runs:
            one = for_reference(same, self.model, [*names.values()], [name for name in made if name])
            self._runs[key] = ReferenceRun(one, ())
        given = {names[name]: value for name, value in taken.items()}
        return dict(zip(outputs, call(self._runs[key], given), strict=True)), ""


def write_one_node(compared: NodeComparison, model: ModelProto, folder: Path) -> Path | None:
    """Write a node as a model with test_data_set_0; return its path, or None where a value is no tensor."""
    path = folder / "model.onnx"
    try:
        alone = model_of([compared.node], model, typed(compared.inputs), typed(compared.expected))
    except VerifyError:
        return None
    write_bytes(path, alone.SerializeToString(deterministic=True))
    dataset.write(folder / f"{DATA_SET}0", DataSet(inputs=compared.inputs, outputs=compared.expected))
    return path
