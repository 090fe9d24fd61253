"""Measure which opsets the exporters of the running torch write, and compare them with the table of cells."""

from __future__ import annotations

from dataclasses import asdict

from opmatrix.export.probe_exporters import measure
from opmatrix.matrix.probe_rows import conclude, torch_differences
from opmatrix.project.paths import Paths
from opmatrix.torch_library.call import torch_minor


def run(layout: Paths) -> None:
    """Write the result of each export. Raises ProbeError with each difference and the right row."""
    version, found = torch_minor(), list(measure())
    differences = torch_differences(version, found)
    conclude(
        layout.probe_result(f"torch{version}"), [asdict(one) for one in found], differences, name=f"torch {version}"
    )
