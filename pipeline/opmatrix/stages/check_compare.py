"""Compare each node of a model with its reference, and find the first that differs. Never imports torch."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from opmatrix.errors import OpmatrixError, many, one_line
from opmatrix.model_check import finding, first_wrong_node
from opmatrix.model_check.against import first_change
from opmatrix.model_check.arguments import parse_shapes
from opmatrix.model_check.custom_nodes import declared_operators, used_operators
from opmatrix.model_check.default_tolerances import tolerances
from opmatrix.model_check.external_data import load
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.first_wrong_node import AGREES, first_wrong
from opmatrix.model_check.graph_walk import node_label
from opmatrix.model_check.inline_functions import inline, or_as_it_is
from opmatrix.model_check.model_inputs import find_inputs
from opmatrix.model_check.per_node_compare import (
    NodeComparison,
    compare_nodes,
    differs_inlined,
    passed_through,
    write_one_node,
)
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.testdata.compare import Comparison
from opmatrix.testdata.numpy_reference import Reference

PART = "compare.json"


def run(
    layout: Paths,
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
    declared = [o.spec for o in declared_operators(layout).operators]
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
        references = [(spec, Reference(layout, spec)) for spec in specs]
        runtime, limits = OrtSessions(None, more=libraries), tolerances(rtol, atol)
        nodes.extend(compare_nodes(proto, fed.inputs, runtime, references, limits, own=own))
        wrong = first_wrong(nodes, differs=differs)
        changed = None
        if against and not wrong:
            before = or_as_it_is(load(against), declared)
            changed = first_change(proto, before, fed.inputs, runtime, limits, name=against.name)
        alone = write_one_node(wrong, proto, into / "first_node") if wrong else None
        yield from [changed] if changed else []
        yield from first_wrong_node.findings(nodes, specs, differs=differs and not changed, own=own)
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
