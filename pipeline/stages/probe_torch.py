"""Measure which opsets the exporters of the running torch really write, and hold that against the table."""

from __future__ import annotations

import json
from dataclasses import asdict

from pipeline.errors import ProbeError
from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.library.torch_call import torch_minor
from pipeline.measured import torch_differences
from pipeline.models.tiny import measure


def run(layout: Layout) -> None:
    """Write what was measured. Raises ProbeError with each difference, and with the row that would be right."""
    version, found = torch_minor(), list(measure())
    write_text(layout.probed(f"torch{version}"), json.dumps([asdict(one) for one in found], indent=1) + "\n")
    if told := torch_differences(version, found):
        raise ProbeError("\n".join(told))
    print(f"torch {version}: as declared")
