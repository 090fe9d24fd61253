"""Libraries of several operators, linked of the objects that their own compile steps have left."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import CompileError, missing
from pipeline.files import write_text
from pipeline.glue import native
from pipeline.layout import Layout
from pipeline.spec import OpSpec
from pipeline.toolchain import merged, native_build, symbols
from pipeline.toolchain.find import find_toolchain


def link(layout: Layout, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, called: str = "") -> None:
    """Bring the libraries, ``torch`` and ``ort`` in one folder, up to date, and let the symbol gate judge them.

    `specs` have kernels; messages of the library for ONNX Runtime call it `called`, or by them. Raises CompileError
    with the linker's own message, or the gate's.
    """
    try:
        sdk = json.loads(layout.sdk.read_text())
    except FileNotFoundError as error:
        raise CompileError(missing(layout.sdk, run="python -m pipeline sdk")) from error
    toolchain, folder, names = find_toolchain(os.environ), libraries["ort"].parent, [spec.name for spec in specs]
    write_text(folder / native_build.IDENTITY, f"{toolchain.identity}onnxruntime {sdk['version']}\n")
    write_text(folder / native_build.SDK, native_build.sdk_ninja(Path(sdk["path"])))
    write_text(folder / native_build.ORT_LIBRARY, native.ort_library(names, called=called))
    write_text(folder / "build.ninja", native_build.linked_ninja(layout, specs, libraries, toolchain=toolchain))
    merged.check_merged({name: path for name in names for path in layout.objects(name, "kernel")})
    command = [toolchain.ninja, "--quiet", "-j", "1", "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(f"{', '.join(names)} cannot be linked together:\n{done.stdout.strip()}")
    if library := libraries.get("torch"):
        symbols.check_torch_library(library, target=native_build.TORCH_TARGET)
    symbols.check_ort_library(libraries["ort"])
