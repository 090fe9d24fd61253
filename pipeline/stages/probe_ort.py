"""Measure which models the running ONNX Runtime reads, and hold that against the table."""

from __future__ import annotations

import json

import onnxruntime

from pipeline.errors import ProbeError
from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.measured import ort_differences
from pipeline.trial.tiny import newest
from pipeline.version import minor


def run(layout: Layout) -> None:
    """Write what was measured. Raises ProbeError with each difference, and with the row that would be right."""
    version = minor(onnxruntime.__version__)
    ir, opset = newest()
    write_text(layout.probed(f"ort{version}"), json.dumps({"ir": ir, "opset": opset}) + "\n")
    if told := ort_differences(version, ir=ir, opset=opset):
        raise ProbeError("\n".join(told))
    print(f"ONNX Runtime {version}: as declared")
