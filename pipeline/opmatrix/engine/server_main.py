"""The program of a server, and what each server imports before it forks steps.

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
from pathlib import Path
from typing import cast

from opmatrix.engine.fork_server import Server
from opmatrix.engine.step_process import Entry, die_with_parent, find_entry

PRELOADS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("opmatrix.stages.data", "opmatrix.stages.export_node"),
    "torch": ("opmatrix.stages.register",),
    "export": ("opmatrix.stages.export", "opmatrix.stages.register", "torch.onnx", "onnxscript"),
    "ort": ("opmatrix.stages.verify",),
    "check": ("opmatrix.stages.check_read", "opmatrix.stages.check_run", "opmatrix.stages.check_compare"),
}

# What a server calls once for all its child processes: exporters, sessions and evaluators are slow at first use.
WARM_UPS: Mapping[str, tuple[str, ...]] = {
    "export": ("opmatrix.export.exporters:warm_up",),
    "ort": ("opmatrix.ort_checks.run_case:warm_up",),
    "check": ("opmatrix.ort_checks.run_case:warm_up",),
}

# Set before a server starts, because libraries read them when they are loaded. One thread: the threads of OpenMP do not
# survive a fork, and onnxruntime's telemetry starts a thread on import. hypothesis imports the plugins of all installed
# packages, such as trio's, which takes 0.2 CPU s.
ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "HYPOTHESIS_NO_PLUGINS": "1",
}


def main(name: str, entry: str, client: str) -> None:
    """Import the modules of the server `name`, answer the client, and serve."""
    gc.disable()  # saves a tenth of the time of importing torch
    die_with_parent()  # later, the server ends when the socket is closed
    if os.getppid() != int(client):  # the client ended before this call
        os._exit(0)
    requests = socket.socket(fileno=os.dup(0))
    function, error = _prepare(name, entry)
    die_with_parent(0)
    requests.send(json.dumps({"error": error, "cpu": time.process_time()}).encode())
    if function:
        gc.freeze()  # a collection in a child process would write to, and so copy, every page
        gc.enable()
        Server(requests, function).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a regular exit of a process with torch takes 0.2 s


def _prepare(name: str, entry: str) -> tuple[Entry | None, str]:
    """Return the entry, or None and an error message. A traceback goes to the server's log."""
    try:
        for module in PRELOADS.get(name, ()):
            importlib.import_module(module)
        for call in WARM_UPS.get(name, ()):
            cast(Callable[[], None], find_entry(call))()
        function = find_entry(entry)
    except Exception as error:
        import traceback

        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"
    tasks = Path("/proc/self/task").iterdir()
    if threads := [(task / "comm").read_text().strip() for task in tasks if int(task.name) != os.getpid()]:
        return None, f"its imports started threads ({', '.join(threads)}), and the children of a fork would hang"
    return function, ""


if __name__ == "__main__":
    main(*sys.argv[1:])
