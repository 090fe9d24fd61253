"""Measure which opsets the exporters of the running torch write, and which dtypes it and they carry."""

from __future__ import annotations

import json
from dataclasses import asdict

from opmatrix.export import probe_dtypes
from opmatrix.export.probe_exporters import measure
from opmatrix.files import write_text
from opmatrix.matrix.probe_rows import source, torch_row
from opmatrix.project.paths import Paths
from opmatrix.torch_library.call import torch_minor


def run(layout: Paths) -> None:
    """Write the result of each export, and why a dtype is not carried."""
    version, found = torch_minor(), list(measure())
    name = f"torch{version}"
    write_text(layout.probe_result(f"{name}-dtypes"), json.dumps(probe_dtypes.measure(layout), indent=1) + "\n")
    write_text(layout.probe_result(name), json.dumps([asdict(one) for one in found], indent=1) + "\n")
    print(f"torch {source(version, torch_row(found))}")
