"""Compare each node of a model with its reference, and find the first that differs. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from opmatrix.errors import OpmatrixError
from opmatrix.model_check import finding, first_wrong_node
from opmatrix.model_check.against import first_change
from opmatrix.model_check.arguments import parse_shapes
from opmatrix.model_check.custom_nodes import declared_operators, used_operators
from opmatrix.model_check.default_tolerances import tolerances
from opmatrix.model_check.first_wrong_node import AGREES, QUESTION, first_wrong
from opmatrix.model_check.inline_functions import inline, or_as_it_is
from opmatrix.model_check.model_inputs import find_inputs
from opmatrix.model_check.per_node_compare import NodeComparison, compare_nodes, differs_inlined, write_one_node
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
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
    original = onnx.load_model(model)
    declared = [o.spec for o in declared_operators(layout).operators]
    specs: Sequence[OpSpec] = ()
    alone: Path | None = None
    nodes: list[NodeComparison] = []
    try:
        proto = inline(original, declared).model
        specs = used_operators(proto, declared)
        fed = find_inputs(proto, model, inputs, specs, parse_shapes(shapes))
        references = [(spec, Reference(layout, spec)) for spec in specs]
        runtime, limits = OrtSessions(None, more=libraries), tolerances(rtol, atol)
        nodes = list(compare_nodes(proto, fed.inputs, runtime, references, limits, own=own))
        wrong = first_wrong(nodes, differs=differs)
        changed = None
        if against and not wrong:
            before = or_as_it_is(onnx.load_model(against), declared)
            changed = first_change(proto, before, fed.inputs, runtime, limits, name=against.name)
        alone = write_one_node(wrong, proto, into / "first_node") if wrong else None
        findings = list(first_wrong_node.findings(nodes, specs, differs=differs and not changed, own=own))
        findings = [changed, *findings] if changed else findings
        if original.functions:
            findings += differs_inlined(str(model), proto, fed.inputs, runtime, limits)
    except OpmatrixError as error:
        if differs or own:
            findings = [finding.wrong(QUESTION, f"cannot be found: {error}")]
        else:  # nothing is known to be wrong in the model
            findings = [finding.note(AGREES, f"the nodes cannot be compared: {error}")]
    finding.write(
        into / PART,
        findings,
        alone=str(alone or ""),
        judged=sum(n.comparison is not None for n in nodes),
        skipped=sum(bool(n.skipped) for n in nodes),
        disputed=sum(n.differs and not n.wrong for n in nodes),
    )
