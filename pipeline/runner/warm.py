"""What each server imports, and the program of a server.

``python -m pipeline.runner.warm NAME ENTRY``, with the socket as standard input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Mapping

from pipeline.runner.child import Entry, die_with_parent, find_entry
from pipeline.runner.server import other_threads, serve

IMPORTS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("numpy", "onnx", "onnx.helper", "onnx.numpy_helper"),
    "torch": ("numpy", "onnx", "onnx.helper", "onnx.numpy_helper", "torch"),
    "export": ("numpy", "onnx", "onnx.helper", "onnx.numpy_helper", "torch", "torch.onnx", "onnxscript"),
    "ort": ("numpy", "onnx", "onnx.helper", "onnx.numpy_helper", "onnx.reference", "onnxruntime"),
}

# Read when a library is loaded, so they must be set before a server starts. One thread each: the threads of OpenMP do
# not survive a fork. onnxruntime's telemetry starts a thread with the import.
ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


def main(name: str, entry: str) -> None:
    """Import what the server `name` offers, say so, and serve."""
    die_with_parent()  # while it imports, nobody reads the socket, whose end means the same later
    requests = socket.socket(fileno=os.dup(0))
    function, error = _prepare(name, entry)
    die_with_parent(0)
    requests.send(json.dumps({"error": error}).encode())
    if function:
        serve(requests, function)


def _prepare(name: str, entry: str) -> tuple[Entry | None, str]:
    """Return the entry, or None and what was wrong. The traceback of an error goes to the server's log."""
    try:
        for module in IMPORTS.get(name, ()):
            importlib.import_module(module)
        if name == "export":
            _export_once()
        function = find_entry(entry)
    except Exception as error:
        import traceback

        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"
    if threads := other_threads():
        return None, f"its imports started threads ({', '.join(threads)}), and the children of a fork would hang"
    gc.freeze()  # a collection in a child would touch, and so copy, every page
    return function, ""


def _export_once() -> None:
    """Export a tiny model with both exporters: what they load and build on first use is then paid once, here."""
    import tempfile
    import warnings

    import torch

    class Add(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    warnings.simplefilter("ignore")
    arguments = (torch.ones(2),)
    with tempfile.NamedTemporaryFile() as file:
        torch.onnx.export(Add(), arguments, file.name, dynamo=False, opset_version=18)
    torch.onnx.export(Add(), arguments, dynamo=True, opset_version=18, verbose=False)
    warnings.resetwarnings()


if __name__ == "__main__":
    main(*sys.argv[1:])
