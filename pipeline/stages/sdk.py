"""Find ONNX Runtime's headers and write down where they are and what is in them."""

from __future__ import annotations

import hashlib
import json
import os

from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.toolchain import sdk


def run(layout: Layout) -> None:
    """Write `layout.sdk`: path, version and origin of the headers, and a fingerprint of each. Raises SdkError."""
    headers = sdk.find_headers(os.environ, cache=sdk.cache_folder(os.environ), say=print)
    found = {
        "path": str(headers.path),
        "version": headers.version,
        "api_version": headers.api_version,
        "origin": headers.origin,
        "files": {
            p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(headers.path.glob("onnxruntime_*.h"))
        },
    }
    write_text(layout.sdk, json.dumps(found, indent=2) + "\n")
    print(f"ONNX Runtime {headers.version} headers: {headers.origin}")
