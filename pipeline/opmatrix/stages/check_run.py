"""Run a model in ONNX Runtime with its libraries, and compare its outputs with the expected. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from opmatrix.declaration.isolated import read_operators
from opmatrix.errors import OpmatrixError, VerifyError
from opmatrix.model_check import finding
from opmatrix.model_check.default_tolerances import tolerances
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.model_inputs import ModelInputs, find_inputs
from opmatrix.model_check.run_model import compare_settings, compare_with_expected
from opmatrix.model_check.run_model import run as run_model
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.spec import Tolerance

PART = "run.json"


def run(
    layout: Paths,
    *,
    model: Path,
    libraries: Sequence[Path],
    inputs: Path | None,
    rtol: float | None,
    atol: float | None,
    of: str,
    into: Path,
) -> None:
    """Write the findings; `of` is the origin of the outputs in test_data_set_0, such as "torch 2.13"."""
    findings: list[Finding] = []
    error = ""
    try:
        proto = onnx.load_model(model, load_external_data=False)
        specs = [o.spec for o in read_operators(layout).operators]
        fed = find_inputs(proto, model, inputs, specs)
        findings = list(_findings(proto, model, libraries, fed, tolerances(rtol, atol), of))
    except VerifyError as mistake:  # a library that cannot be loaded
        findings.append(finding.wrong("runs", str(mistake)))
    except OpmatrixError as mistake:
        error = str(mistake)
    marks = {f.question: f.mark for f in findings}
    # A finding with a remedy is the fault of an optimisation and not of a node.
    differs = any(f.question == "agrees" and f.mark == "wrong" and not f.remedy for f in findings)
    finding.write(
        into / PART,
        findings,
        error=error,
        ran=marks.get("runs") == "ok",
        differs=differs,
        agrees=marks.get("agrees") == "ok",
    )


def _findings(
    proto: ModelProto, path: Path, libraries: Sequence[Path], fed: ModelInputs, limits: Mapping[str, Tolerance], of: str
) -> Iterator[Finding]:
    found, answers = run_model(path, OrtSessions(None, more=libraries), fed)
    yield from found
    if any(f.mark == "wrong" for f in found):
        return
    if fed.expected:
        yield from compare_with_expected(proto, answers, fed.expected, limits, of=of)
    else:
        yield from compare_settings(proto, answers, limits)
