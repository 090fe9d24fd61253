"""Measure which opsets the exporters of the running torch write, and which dtypes it and they carry, and compare that
with the tables of cells and of dtypes."""

from __future__ import annotations

import json
from dataclasses import asdict

from opmatrix.export import probe_dtypes
from opmatrix.export.probe_exporters import measure
from opmatrix.files import write_text
from opmatrix.matrix import dtypes
from opmatrix.matrix.probe_rows import conclude, torch_differences
from opmatrix.project.paths import Paths
from opmatrix.torch_library.call import torch_minor


def run(layout: Paths) -> None:
    """Write the result of each export. Raises ProbeError with each difference and the right row."""
    version, found, carried = torch_minor(), list(measure()), probe_dtypes.measure(layout)
    write_text(layout.probe_result(f"torch{version}-dtypes"), json.dumps(carried, indent=1) + "\n")
    differences = [*torch_differences(version, found), *dtypes.differences(carried, version=version)]
    conclude(
        layout.probe_result(f"torch{version}"), [asdict(one) for one in found], differences, name=f"torch {version}"
    )
