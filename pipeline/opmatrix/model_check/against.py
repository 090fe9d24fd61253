"""Find the first node at which a model differs from another one with the same names of values. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import captured, node_label, opsets
from opmatrix.model_check.node_values import BATCH, inner_values
from opmatrix.model_check.run_model import compare_value
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.spec import Tolerance
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import same_bytes
from opmatrix.testdata.onnx_dataset import to_array


def first_change(
    model: ModelProto,
    original: ModelProto,
    fed: Mapping[str, Any],
    runtime: OrtSessions,
    limits: Mapping[str, Tolerance],
    *,
    name: str,
) -> Finding | None:
    """Return the first node whose output differs from the value of that name in `original`, although its inputs do not,
    and what is changed there. None where no value of that name differs, as in a model with other names."""
    before = {output for node in original.graph.node for output in node.output}
    nodes = [node for node in model.graph.node if before.intersection(node.output)]
    for start in range(0, len(nodes), BATCH):
        batch = nodes[start : start + BATCH]
        wanted = sorted({o for node in batch for o in node.output if o} & before)
        ours, theirs = (inner_values(of, wanted, fed, runtime) for of in (model, original))
        for node in batch:
            for output in node.output:
                if output not in ours:
                    continue
                compared = compare_value(output, ours[output], theirs[output], limits)
                if not compared.ok:
                    changes = ", ".join(_changes(node, model, original)) or "its inputs within the tolerance"
                    text = f"{node_label(node)} is the first that differs from {name}: {compared}. Changed: {changes}"
                    return finding.wrong("first node", text)
    return None


def _changes(node: NodeProto, model: ModelProto, original: ModelProto) -> Iterator[str]:
    """Yield how a node, its constants or the opset differ from those of the original."""
    before = next((n for n in original.graph.node if set(n.output) & {o for o in node.output if o}), None)
    if before is None:
        return
    if (node.domain, node.op_type) != (before.domain, before.op_type):
        yield f"the op type, which was {before.op_type}"
    ours, theirs = ({a.name: a for a in of.attribute} for of in (node, before))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            yield f"the attribute {key!r}, {_shown(theirs.get(key))} before, {_shown(ours.get(key))} now"
    if list(node.input) != list(before.input):
        yield f"the inputs, {', '.join(before.input)} before, {', '.join(node.input)} now"
    held, held_before = ({t.name: t for t in of.graph.initializer} for of in (model, original))
    for value in dict.fromkeys((*node.input, *sorted(captured(node)))):
        if value in held and value in held_before and not _equal(held[value], held_before[value]):
            yield f"the constant {value!r}"
    versions, versions_before = opsets(model), opsets(original)
    domain = "" if node.domain == "ai.onnx" else node.domain
    if versions.get(domain) != versions_before.get(domain):
        yield f"the opset, {versions_before.get(domain)} before, {versions.get(domain)} now"


def _equal(ours: TensorProto, theirs: TensorProto) -> bool:
    a: Array = to_array(ours)
    return same_bytes(a, to_array(theirs))


def _shown(attribute: AttributeProto | None) -> str:
    if attribute is None:
        return "absent"
    value = str(helper.get_attribute_value(attribute))
    return value if len(value) <= 60 else f"{value[:57]}..."
