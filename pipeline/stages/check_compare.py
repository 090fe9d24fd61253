"""Hold each node of a model against its reference, and name the first that differs. Never torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx

from pipeline.data.reference import Reference
from pipeline.errors import OpmatrixError
from pipeline.inspection import blame, finding
from pipeline.inspection.blame import QUESTION, first_wrong
from pipeline.inspection.feeding import find_inputs
from pipeline.inspection.nodes import used
from pipeline.inspection.nodewise import nodewise, write_alone
from pipeline.inspection.tolerances import tolerances
from pipeline.layout import Layout
from pipeline.load import load_operators
from pipeline.trial.runtime import Runtime

PART = "compare.json"


def run(
    layout: Layout,
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
    """Write the findings; `differs` says that the outputs are not the expected ones.

    With `own` only the nodes of this project's operators are compared.
    """
    proto = onnx.load_model(model)
    specs = used(proto, [o.spec for o in load_operators(layout)])
    try:
        fed = find_inputs(proto, model, inputs)
        references = [(spec, Reference(layout, spec)) for spec in specs]
        limits = tolerances(rtol, atol)
        nodes = list(nodewise(proto, fed.inputs, Runtime(None, more=libraries), references, limits, own=own))
        wrong = first_wrong(nodes)
        alone = write_alone(wrong, proto, into / "first_node") if wrong else None
        replay = f" It alone: doit check {os.path.relpath(alone)}" if alone else ""
        findings = list(blame.findings(nodes, specs, differs=differs, own=own, replay=replay))
    except OpmatrixError as error:
        findings = [finding.wrong(QUESTION, f"cannot be looked for: {error}")]
    finding.write(into / PART, findings)
