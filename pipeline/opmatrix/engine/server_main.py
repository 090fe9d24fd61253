"""What each server imports, and the program of a server.

``python -m opmatrix.engine.server_main NAME ENTRY CLIENT``, with the socket as standard input; CLIENT is a process id.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import cast

from opmatrix.engine.fork_server import Server, other_threads
from opmatrix.engine.step_process import Entry, die_with_parent, find_entry, warm_up

PRELOADS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("opmatrix.stages.data", "opmatrix.stages.export_node"),
    "torch": ("opmatrix.stages.register",),
    "export": ("opmatrix.stages.export", "opmatrix.stages.register", "torch.onnx", "onnxscript"),
    "ort": ("opmatrix.stages.verify",),
}

# What a server runs once, so that its children need not: exporters, sessions and evaluators build a good deal on first
# use.
WARM_UPS: Mapping[str, tuple[str, ...]] = {
    "export": ("opmatrix.export.exporters:warm_up",),
    "ort": ("opmatrix.ort_checks.run_case:warm_up",),
}

# Read when a library is loaded, so they must be set before a server starts. One thread each: the threads of OpenMP do
# not survive a fork. onnxruntime's telemetry starts a thread with the import.
ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


def main(name: str, entry: str, client: str) -> None:
    """Import what the server `name` offers, say so, and serve."""
    gc.disable()  # a tenth of the time of importing torch: nothing of it is garbage
    die_with_parent()  # while it imports, nobody reads the socket, whose end means the same later
    if os.getppid() != int(client):  # it had ended before we asked
        os._exit(0)
    requests = socket.socket(fileno=os.dup(0))
    function, error = _prepare(name, entry)
    die_with_parent(0)
    requests.send(json.dumps({"error": error, "cpu": time.process_time()}).encode())
    if function:
        gc.freeze()  # a collection in a child would touch, and so copy, every page
        gc.enable()
        Server(requests, function).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # to take a process with torch apart takes 0.2 s, and there is nothing in it to save


def _prepare(name: str, entry: str) -> tuple[Entry | None, str]:
    """Return the entry, or None and what was wrong. The traceback of an error goes to the server's log."""
    try:
        for module in PRELOADS.get(name, ()):
            importlib.import_module(module)
        for call in WARM_UPS.get(name, ()):
            cast(Callable[[], None], find_entry(call))()
        function = find_entry(entry)
        warm_up(function)
    except Exception as error:
        import traceback

        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"
    if threads := other_threads():
        return None, f"its imports started threads ({', '.join(threads)}), and the children of a fork would hang"
    return function, ""


if __name__ == "__main__":
    main(*sys.argv[1:])
