"""Compare each node of a model with its reference, and find the first that differs. Never imports torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx

from opmatrix.declaration.isolated import read_operators
from opmatrix.errors import OpmatrixError
from opmatrix.model_check import finding, first_wrong_node
from opmatrix.model_check.custom_nodes import used_operators
from opmatrix.model_check.default_tolerances import tolerances
from opmatrix.model_check.first_wrong_node import QUESTION, first_wrong
from opmatrix.model_check.model_inputs import find_inputs
from opmatrix.model_check.per_node_compare import compare_nodes, write_one_node
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.testdata.numpy_reference import Reference

PART = "compare.json"


def run(
    layout: Paths,
    *,
    model: Path,
    libraries: Sequence[Path],
    inputs: Path | None,
    rtol: float | None,
    atol: float | None,
    differs: bool,
    own: bool,
    into: Path,
) -> None:
    """Write the findings. `differs`: the outputs are not the expected ones. `own`: compare only the nodes of this
    project's operators."""
    proto = onnx.load_model(model)
    specs = used_operators(proto, [o.spec for o in read_operators(layout).operators])
    try:
        fed = find_inputs(proto, model, inputs, specs)
        references = [(spec, Reference(layout, spec)) for spec in specs]
        limits = tolerances(rtol, atol)
        nodes = list(compare_nodes(proto, fed.inputs, OrtSessions(None, more=libraries), references, limits, own=own))
        wrong = first_wrong(nodes, differs=differs)
        alone = write_one_node(wrong, proto, into / "first_node") if wrong else None
        replay = f" It alone: doit check {os.path.relpath(alone)}" if alone else ""
        findings = list(first_wrong_node.findings(nodes, specs, differs=differs, own=own, replay=replay))
    except OpmatrixError as error:
        findings = [finding.wrong(QUESTION, f"cannot be looked for: {error}")]
    finding.write(into / PART, findings)
