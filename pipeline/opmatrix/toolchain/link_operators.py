"""Link libraries of several operators from the objects of their compile steps: for link-together and link-wheel."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from opmatrix.codegen import cpp_bindings
from opmatrix.errors import CompileError
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import elf_symbols, ninja_file, odr_check, ort_headers
from opmatrix.toolchain.find_tools import find_toolchain


def link(layout: Paths, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, display_name: str = "") -> None:
    """Bring the libraries, ``torch`` and ``ort`` in one folder, up to date, and run the symbol gate on them.

    `specs` have kernels. Messages of the library for ONNX Runtime name it `display_name`, or list the operators.
    Raises CompileError with the message of the linker or the gate.
    """
    found = ort_headers.recorded(layout)
    toolchain, folder, names = find_toolchain(os.environ), libraries["ort"].parent, [spec.name for spec in specs]
    write_text(folder / ninja_file.IDENTITY, f"{toolchain.identity}onnxruntime {found['version']}\n")
    write_text(folder / ninja_file.HEADER_PATHS, ninja_file.headers_ninja(Path(found["path"])))
    write_text(folder / ninja_file.ORT_LIBRARY, cpp_bindings.ort_library(names, called=display_name))
    write_text(folder / "build.ninja", ninja_file.linked_ninja(layout, specs, libraries, toolchain=toolchain))
    odr_check.check_one_definition({name: path for name in names for path in layout.objects(name, "kernel")})
    command = [toolchain.ninja, "--quiet", "-j", "1", "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(f"{', '.join(names)} cannot be linked together:\n{done.stdout.strip()}")
    if library := libraries.get("torch"):
        elf_symbols.check_torch_library(library, target=ninja_file.TORCH_TARGET)
    elf_symbols.check_ort_library(libraries["ort"])
