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
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from opmatrix.basics import features
from opmatrix.basics.processes import die_with_parent
from opmatrix.data import reference_audit
from opmatrix.engine.fork_server import Entry, Server, find_function
from opmatrix.project import judging_code
from opmatrix.records.code_hash import STAGE_MODULES

# The modules that each server imports, and the functions that it calls once for all its child processes: exporters,
# sessions and evaluators are slow at first use. The features have further servers.
_PRELOADS: Mapping[str, tuple[str, ...]] = {
    "onnx": (*map(STAGE_MODULES.__getitem__, ("cases", "data", "draw-inputs", "export-node")), "numpy.random"),
    "torch": ("opmatrix.torch_checks.register",),
    "export": (
        "opmatrix.export.write_models",
        "opmatrix.torch_checks.register",
        "torch.onnx",
        "onnxscript",
        "opmatrix.export.exporters:warm_up",
    ),
    "ort": ("opmatrix.ort_checks.verify", "opmatrix.ort_checks.run_case:warm_up"),
}

# What the light server imports when the first step of one of these stages comes, for all that follow. Not at its start:
# most runs have no such step.
_OF_STAGES: Mapping[str, tuple[str, ...]] = {
    "codegen": ("opmatrix.codegen.write_code",),
    "compile": ("opmatrix.toolchain.compile", "elftools.elf.dynamic", "elftools.elf.elffile"),
}

# Set before a server starts, because libraries read them when they are loaded. One thread: the threads of OpenMP do not
# survive a fork, and onnxruntime's telemetry starts a thread on import. hypothesis imports the plugins of all installed
# packages, such as trio's, which takes 0.2 CPU s. torch stays at x86-64-v3 on a processor that has more, as NumPy does
# (`pin_numpy`): what is proven is then the same on all machines of a team, which share it (opmatrix.shared_cache.salt).
ENVIRONMENT: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "HYPOTHESIS_NO_PLUGINS": "1",
}


# The names of what NumPy has beyond x86-64-v3. 2.4 has one for each level of the psABI; with an unknown name it warns.
_BEYOND_V3 = "X86_V4 AVX512_ICL AVX512_SPR"
_BEYOND_V3_BEFORE_2_4 = "AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"


def pin_numpy() -> None:
    """Keep NumPy at x86-64-v3, in this process and in those that it starts, before anything imports NumPy."""
    major, least = (int(part) for part in metadata.version("numpy").split(".")[:2])
    os.environ["NPY_DISABLE_CPU_FEATURES"] = _BEYOND_V3 if (major, least) >= (2, 4) else _BEYOND_V3_BEFORE_2_4


def import_for(stage: str) -> None:
    """Import what the steps of a stage need. If it cannot be imported, they raise that themselves."""
    if new := [module for module in _OF_STAGES.get(stage, ()) if module not in sys.modules]:
        with suppress(Exception):
            for module in new:
                importlib.import_module(module)
        judging_code.record()


def main(name: str, entry: str, client: str) -> None:
    """Import the modules of the server `name`, answer the client, and serve."""
    pin_numpy()
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
        Server(requests, function, import_for).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a regular exit of a process with torch takes 0.2 s


def _prepare(name: str, entry: str) -> tuple[Entry | None, str]:
    """Return the entry, or None and an error message. A traceback goes to the server's log."""
    try:
        for place in _PRELOADS.get(name) or features.added("servers").get(name, ()):
            if ":" in place:
                find_function(place)()
            else:
                importlib.import_module(place)
        called: Entry = find_function(entry)
        reference_audit.start()
        judging_code.record()
    except Exception as error:
        import traceback

        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"
    tasks = (task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid())
    if threads := [(task / "comm").read_text(encoding="utf-8").strip() for task in tasks]:
        return None, f"its imports started threads ({', '.join(threads)}), and the children of a fork would hang"
    return called, ""


if __name__ == "__main__":
    main(*sys.argv[1:])
