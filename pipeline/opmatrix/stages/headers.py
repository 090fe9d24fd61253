"""Find ONNX Runtime's headers and record their path and hashes."""

from __future__ import annotations

import hashlib
import json
import os

from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.toolchain import ort_headers


def run(layout: Paths) -> None:
    """Write `layout.ort_headers`: path, version and origin of the headers, and the hash of each. Raises SdkError."""
    headers = ort_headers.find_headers(os.environ, cache=ort_headers.cache_folder(os.environ), say=print)
    files = sorted(headers.path.glob("onnxruntime_*.h"))
    found = {
        "path": str(headers.path),
        "version": headers.version,
        "api_version": headers.api_version,
        "origin": headers.origin,
        "files": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    }
    write_text(layout.ort_headers, json.dumps(found, indent=2) + "\n")
    print(f"ONNX Runtime {headers.version} headers: {headers.origin}")
