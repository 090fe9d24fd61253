"""Find ONNX Runtime's headers, and record their hashes and their path."""

from __future__ import annotations

import hashlib
import json
import os

from opmatrix.basics.files import write_text
from opmatrix.cache import settings
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.shared_headers import HeadersInCache


def run(paths: Paths) -> None:
    """Write `paths.ort_headers`, the version of the headers and the hash of each, and `paths.ort_headers_place`, the
    folder on this machine, on which no result depends. Raises SdkError and UsageError."""
    cache = settings.read(paths, os.environ)
    shared = HeadersInCache(cache, print) if cache else None
    headers = ort_headers.find_headers(os.environ, cache=cache_folder(os.environ), say=print, shared=shared)
    files = sorted(headers.path.glob("onnxruntime_*.h"))
    found = {
        "version": headers.version,
        "api_version": headers.api_version,
        "files": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    }
    place = {"path": str(headers.path), "origin": headers.origin}
    write_text(paths.ort_headers_place, json.dumps(place, indent=2) + "\n")
    write_text(paths.ort_headers, json.dumps(found, indent=2) + "\n")
    print(f"ONNX Runtime {headers.version} headers: {headers.origin}")
