"""Run a model in ONNX Runtime with its libraries, and hold its outputs against what is expected. Never torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from opmatrix.errors import OpmatrixError, UsageError, VerifyError
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
    """Write the findings; `of` says who expects what stands in test_data_set_0, such as "torch 2.13"."""
    findings: list[Finding] = []
    error = ""
    try:
        fed = find_inputs(onnx.load_model(model, load_external_data=False), model, inputs)
        findings = list(_findings(model, libraries, fed, tolerances(rtol, atol), of))
    except UsageError as mistake:
        error = str(mistake)
    except VerifyError as mistake:  # a library that cannot be loaded
        findings.append(finding.wrong("runs", str(mistake)))
    except OpmatrixError as mistake:
        error = str(mistake)
    told = {f.question: f.mark for f in findings}
    # What an optimisation alone makes wrong has a remedy already, and is in no node.
    differs = any(f.question == "agrees" and f.mark == "wrong" and not f.remedy for f in findings)
    finding.write(
        into / PART,
        findings,
        error=error,
        ran=told.get("runs") == "ok",
        differs=differs,
        agrees=told.get("agrees") == "ok",
    )


def _findings(
    model: Path, libraries: Sequence[Path], fed: ModelInputs, limits: Mapping[str, Tolerance], of: str
) -> Iterator[Finding]:
    runtime = OrtSessions(None, more=libraries)
    found, answers = run_model(model, runtime, fed)
    yield from found
    if any(f.mark == "wrong" for f in found):
        return
    proto = onnx.load_model(model, load_external_data=False)
    if fed.expected:
        yield from compare_with_expected(proto, answers, fed.expected, limits, of=of)
    else:
        yield from compare_settings(proto, answers, limits)
