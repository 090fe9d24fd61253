"""Measure which opsets the exporters of the running torch really write, and compare that with the table."""

from __future__ import annotations

from dataclasses import asdict

from pipeline.layout import Layout
from pipeline.library.torch_call import torch_minor
from pipeline.measured import conclude, torch_differences
from pipeline.models.tiny import measure


def run(layout: Layout) -> None:
    """Write what each export made. Raises ProbeError with each difference, and with the row that would be right."""
    version, found = torch_minor(), list(measure())
    differences = torch_differences(version, found)
    conclude(layout.probed(f"torch{version}"), [asdict(one) for one in found], differences, name=f"torch {version}")
