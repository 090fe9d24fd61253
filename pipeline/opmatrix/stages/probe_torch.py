"""Measure which opsets the exporters of the running torch really write, and compare that with the table."""

from __future__ import annotations

from dataclasses import asdict

from opmatrix.export.probe_exporters import measure
from opmatrix.matrix.probe_rows import conclude, torch_differences
from opmatrix.project.paths import Paths
from opmatrix.torch_library.call import torch_minor


def run(layout: Paths) -> None:
    """Write what each export made. Raises ProbeError with each difference, and with the row that would be right."""
    version, found = torch_minor(), list(measure())
    differences = torch_differences(version, found)
    conclude(
        layout.probe_result(f"torch{version}"), [asdict(one) for one in found], differences, name=f"torch {version}"
    )
