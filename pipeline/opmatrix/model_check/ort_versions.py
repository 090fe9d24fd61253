"""The "versions" finding of `doit check`: whether an ONNX Runtime reads the model's opset and IR version.

It uses the table of matrix/cells.py, so that the ONNX Runtime need not be installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opmatrix.errors import UsageError
from opmatrix.matrix.cells import ORT
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.version import numbers


def parse_version(version: str) -> tuple[int, int]:
    """Return "1.18" as (1, 18). Raises UsageError for a malformed version, or one older than the table."""
    if not (found := re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", version)):
        raise UsageError(f"--ort {version}: no version of ONNX Runtime; write it like 1.18")
    wanted = int(found[1]), int(found[2])
    if wanted < min(map(numbers, ORT)):
        raise UsageError(
            f"--ort {version}: nothing is known of versions before {next(iter(ORT))}; known: {', '.join(ORT)}"
        )
    return wanted


def version_findings(ir: int, opset: int, *, ort: str) -> Iterator[Finding]:
    """Yield why an ONNX Runtime does not read a model; a version without a row is judged by its neighbours."""
    wanted = parse_version(ort)
    older = [name for name in ORT if numbers(name) <= wanted][-1]
    newer = next((name for name in ORT if numbers(name) >= wanted), None)
    for found, what, limit in ((opset, "opset", "opset"), (ir, "IR version", "ir")):
        low = getattr(ORT[older], limit)
        high = getattr(ORT[newer], limit) if newer else None
        if found <= low:
            continue
        if high is not None and found > high:
            measured = ort if older == newer else newer
            yield finding.wrong(
                "versions",
                f"the model has {what} {found}, and ONNX Runtime {measured} reads {high} at most",
                _remedy(what, high, found),
            )
        else:
            between = f"{older} reads {low} at most" + (
                f", {newer} {high}" if newer else ", and nothing newer is known"
            )
            yield finding.note(
                "versions", f"whether ONNX Runtime {ort} reads {what} {found} was never measured: {between}"
            )


def _remedy(what: str, limit: int, found: int) -> str:
    first = next((name for name, row in ORT.items() if found <= (row.opset if what == "opset" else row.ir)), None)
    install = f", or install ONNX Runtime {first} or newer" if first else ""
    if what == "opset":
        return f"Export at opset {limit} or below{install}"
    return f"Export at a lower opset: the legacy exporter then writes a lower IR version, too{install}"
