"""Link the objects of several operators into one pair of libraries, and let the symbol gate judge them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pipeline import unfilled
from pipeline.dist.parts import sides
from pipeline.dist.settings import Dist
from pipeline.errors import CompileError
from pipeline.files import write_text
from pipeline.glue import native
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.schema import has_kernel
from pipeline.toolchain import merged, native_build, symbols
from pipeline.toolchain.find import find_toolchain


def run(layout: Layout, dist: Dist, operators: Sequence[Operator]) -> None:
    """Write both libraries to build/linked/. Raises CompileError with the linker's own message, or the gate's,
    and DistError for a placeholder.
    """
    unfilled.refuse(layout, [o.name for o in operators])
    toolchain, folder = find_toolchain(os.environ), layout.linked
    try:
        sdk = json.loads(layout.sdk.read_text())
    except FileNotFoundError as error:
        raise CompileError(f"'{layout.sdk}' is missing. Run `python -m pipeline sdk` first.") from error
    kernels = [o.spec for o in operators if has_kernel(o.spec)]
    text = native.ort_library([spec.name for spec in kernels], called=dist.name)
    write_text(folder / native_build.ORT_LIBRARY, text)
    write_text(folder / native_build.IDENTITY, toolchain.identity)
    write_text(folder / native_build.SDK, native_build.sdk_ninja(Path(sdk["path"])))
    write_text(folder / "build.ninja", native_build.linked_ninja(layout, dist.name, kernels, toolchain=toolchain))
    for made in folder.glob("*.o"):  # ninja looks at time stamps alone, and this is the one thing to compile
        made.unlink()
    merged.check_merged({spec.name: path for spec in kernels for path in layout.objects(spec.name, "kernel")})
    command = [toolchain.ninja, "--quiet", "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(done.stdout)
    if "torch" in sides(operators):
        library = layout.linked_library(dist.name, "torch")
        symbols.check_torch_library(library, target=native_build.TORCH_TARGET)
    symbols.check_ort_library(layout.linked_library(dist.name, "ort"))
