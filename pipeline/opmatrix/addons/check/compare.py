"""The "first node" finding of `doit check`: the first node whose outputs differ from those of its reference, or from
the values of another model with the same names. Never imports torch."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, helper

from opmatrix.addons.check.arguments import parse_shapes
from opmatrix.addons.check.functions import inline, or_as_it_is
from opmatrix.addons.check.graph_walk import captured, node_label, opsets, spec_of
from opmatrix.addons.check.inputs import find_inputs, tolerances
from opmatrix.addons.check.nodes import declared_operators, used_operators
from opmatrix.addons.check.per_node import (
    BATCH,
    NodeComparison,
    compare_nodes,
    differs_inlined,
    inner_values,
    passed_through,
    write_one_node,
)
from opmatrix.addons.check.repair import load
from opmatrix.addons.check.run_model import compare_value
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, many, one_line
from opmatrix.basics.finding import Finding
from opmatrix.data.compare import Comparison, same_bytes
from opmatrix.data.dataset import to_array
from opmatrix.data.reference import Reference
from opmatrix.lowering.graph import qualified
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec, Tolerance

QUESTION, AGREES = "first node", "agrees"


def first_wrong(nodes: Sequence[NodeComparison], *, differs: bool) -> NodeComparison | None:
    """Return the first wrong node. If the model's outputs differ from the expected ones, these decide with
    onnx.reference where float64 does not."""
    undecided = (n for n in nodes if differs and n.differs and n.judgement and n.judgement.outcome == "unknown")
    return next((n for n in nodes if n.wrong), None) or next(undecided, None)


def first_wrong_findings(
    nodes: Sequence[NodeComparison], operators: Sequence[OpSpec], *, differs: bool, own: bool = False
) -> Iterator[Finding]:
    """Yield the first node that differs from its reference, or that none does, and the nodes that were skipped.

    `differs`: the model's outputs differ from the expected ones. `own`: only the nodes of this project's operators were
    compared.
    """
    compared = [n.comparison for n in nodes if n.comparison]
    found = first_wrong(nodes, differs=differs)
    disputed = [n for n in nodes if n.differs and not n.wrong and n is not found]
    if found:
        others = sum(n.wrong and n is not found for n in nodes)
        more = f". {others} further node{'s differ' if others > 1 else ' differs'} as well" if others else ""
        yield finding.wrong(QUESTION, f"{found}{more}", _remedy(found, operators))
    elif differs:
        yield finding.wrong(QUESTION, *_none_wrong(compared, nodes))
    elif agreeing := len(compared) - len(disputed):
        theirs = () if own else ("onnx.reference",)
        whom = " and ".join([*theirs, *(["the references of this project"] if operators else [])])
        yield finding.ok(AGREES, f"with {whom}, node by node: {many(agreeing, 'node')}")
    if disputed:
        more = f". {len(disputed) - 1} further, too" if disputed[1:] else ""
        yield finding.note(QUESTION if differs else AGREES, f"implementations disagree at {disputed[0]}{more}")
    if failed := [n for n in nodes if n.failed]:
        more = f", and at {many(len(failed) - 1, 'further node')}" if failed[1:] else ""
        yield finding.ours(f"at {node_label(failed[0].node)}{more}: {failed[0].failed}")
    if skipped := [n for n in nodes if n.skipped]:
        names = ", ".join(sorted({qualified(n.node) for n in skipped})[:5])
        yield finding.note(
            QUESTION if differs else AGREES,
            f"{many(len(skipped), 'node')} without a reference ({names}): {skipped[0].skipped}",
        )


def _none_wrong(compared: Sequence[Comparison], nodes: Sequence[NodeComparison]) -> tuple[str, str]:
    """Return that no node differs from its reference, although the outputs differ, and what that means."""
    if len(nodes) == 1:
        (only,) = nodes
        return (
            f"{node_label(only.node)}, the only one, computes what its reference does with the same numbers: "
            "two of three agree, and the expected outputs do not",
            "So its attributes, its constants or the opset are not those of the expected outputs, or see --rtol "
            "and --atol",
        )
    used = [(n.comparison.tolerance_used, n.node) for n in nodes if n.comparison]
    share, node = max(used, key=lambda u: u[0], default=(0.0, None))
    nearest = f"; the nearest to its limit is {node_label(node)}, {share:.0%} of it" if node else ""
    return (
        f"none alone: each of {len(compared)} nodes computes what its reference does with the same numbers{nearest}",
        "So the model itself is another one (its exporter, a lowering), the expected outputs are not of it, "
        " or errors add up: see --rtol and --atol. --against ORIGINAL.onnx compares it with another model",
    )


def _remedy(wrong: NodeComparison, operators: Sequence[OpSpec]) -> str:
    spec = spec_of(wrong.node, operators)
    if spec and spec.runtime == "kernel":
        return f"Kernel and ops/{spec.name}/reference.py differ: is the kernel rebuilt, and which of them is right?"
    if spec:
        return f"ONNX Runtime's own kernel and ops/{spec.name}/reference.py differ: look at the reference first"
    return "No operator of this project, and a fault of this ONNX Runtime: try the node in another version"


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
        both = value in held and value in held_before
        if both and not same_bytes(to_array(held[value]), to_array(held_before[value])):
            yield f"the constant {value!r}"
    versions, versions_before = opsets(model), opsets(original)
    domain = "" if node.domain == "ai.onnx" else node.domain
    if versions.get(domain) != versions_before.get(domain):
        yield f"the opset, {versions_before.get(domain)} before, {versions.get(domain)} now"


def _shown(attribute: AttributeProto | None) -> str:
    if attribute is None:
        return "absent"
    value = str(helper.get_attribute_value(attribute))
    return value if len(value) <= 60 else f"{value[:57]}..."


PART = "compare.json"


def run(
    paths: Paths,
    *,
    model: Path,
    libraries: Sequence[Path],
    inputs: Path | None,
    shapes: Sequence[str],
    against: Path | None,
    rtol: float | None,
    atol: float | None,
    differs: bool,
    own: bool,
    into: Path,
) -> None:
    """Write the findings. `differs`: the outputs are not the expected ones. `own`: compare only the nodes of this
    project's operators."""
    declared = [o.spec for o in declared_operators(paths).operators]
    alone: Path | None = None
    nodes: list[NodeComparison] = []
    passed: list[Comparison] = []
    findings: list[Finding] = []
    unfinished = False

    def compared() -> Iterator[Finding]:
        nonlocal alone
        original = load(model)
        proto = inline(original, declared).model
        specs = used_operators(proto, declared)
        fed = find_inputs(proto, model, inputs, specs, parse_shapes(shapes))
        references = [(spec, Reference(paths, spec)) for spec in specs]
        runtime, limits = OrtSessions(None, more=libraries), tolerances(rtol, atol)
        nodes.extend(compare_nodes(proto, fed.inputs, runtime, references, limits, own=own))
        wrong = first_wrong(nodes, differs=differs)
        changed = None
        if against and not wrong:
            before = or_as_it_is(load(against), declared)
            changed = first_change(proto, before, fed.inputs, runtime, limits, name=against.name)
        alone = write_one_node(wrong, proto, into / "first_node") if wrong else None
        yield from [changed] if changed else []
        yield from first_wrong_findings(nodes, specs, differs=differs and not changed, own=own)
        if original.functions:
            yield from differs_inlined(str(model), proto, fed.inputs, runtime, limits)
        for found in passed_through(proto, fed.inputs, runtime, limits):
            passed.append(found)
            if not found.ok:
                yield finding.wrong(AGREES, f"not with the value of that name: {found}")
        if not proto.graph.node:
            yield finding.ok(AGREES, f"with the values of their names: {many(len(passed), 'output')}")

    try:
        findings.extend(compared())  # which keeps what was found before an error
    except OpmatrixError as error:
        unfinished = True
        findings.append(finding.note(AGREES, f"{_ends(nodes)}: {error}"))
    except Exception as error:  # of this code, or of onnx's: it says nothing about the model
        traceback.print_exc()
        findings.append(finding.ours(f"where {_ends(nodes)}: {type(error).__name__}: {one_line(error)}"))
    finding.write(
        into / PART,
        findings,
        alone=str(alone or ""),
        judged=sum(n.comparison is not None for n in nodes) + len(passed),
        skipped=sum(bool(n.skipped) for n in nodes) + unfinished,
        disputed=sum(n.differs and not n.wrong for n in nodes),
    )


def _ends(nodes: Sequence[NodeComparison]) -> str:
    return f"the comparison ends, behind {node_label(nodes[-1].node)}" if nodes else "the nodes cannot be compared"
