"""Link one ONNX Runtime library of several operators, of the objects that their own compile steps have left."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import CompileError
from pipeline.files import write_text
from pipeline.glue.native import ort_library
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.schema import OWN_ORT, has_kernel, is_own
from pipeline.toolchain import merged, native_build, symbols
from pipeline.toolchain.find import find_toolchain


def run(layout: Layout, operators: Sequence[Operator]) -> Path:
    """Bring the library up to date and return its path. Raises CompileError.

    The objects are taken as they are: who wants them to follow an edit lets the compile steps run first.
    """
    names = [o.name for o in operators]
    for operator in operators:
        _check(layout, operator)
    try:
        sdk = json.loads(layout.sdk.read_text())
    except FileNotFoundError as error:
        raise CompileError(f"'{layout.sdk}' is missing. Run `python -m pipeline sdk` first.") from error
    toolchain = find_toolchain(os.environ)
    folder = layout.combined(names)
    write_text(folder / native_build.IDENTITY, f"{toolchain.identity}onnxruntime {sdk['version']}\n")
    write_text(folder / native_build.SDK, native_build.sdk_ninja(Path(sdk["path"])))
    write_text(folder / native_build.ORT_LIBRARY, ort_library(names))
    write_text(folder / "build.ninja", native_build.combined_ninja(layout, names, toolchain=toolchain))
    merged.check_merged({name: path for name in names for path in layout.objects(name, "kernel")})
    command = [toolchain.ninja, "--quiet", "-j", "1", "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(f"one library of {', '.join(names)} cannot be linked:\n{done.stdout.strip()}")
    path = layout.combined_library(names)
    symbols.check_ort_library(path)
    return path


def _check(layout: Layout, operator: Operator) -> None:
    """Raise CompileError for an operator that gives no objects of its own, or none yet."""
    name = operator.name
    if not has_kernel(operator.spec):
        why = f"it uses {', '.join(operator.spec.uses)}; link those" if operator.spec.uses else "its kernel is " \
            "ONNX Runtime's own"  # fmt: skip
        raise CompileError(f"{name} has no objects: {why}")
    if is_own(OWN_ORT, operator.spec, operator.written):
        raise CompileError(f"native/{name}/ort.cc has a RegisterCustomOps of its own, and a library has one; write "
                           f"native/{name}/kernel.h instead, or load its own library beside this one")  # fmt: skip
    if missing := next((p for p in layout.objects(name, *native_build.OBJECTS) if not p.is_file()), None):
        raise CompileError(f"{missing} is missing. Build it: doit compile:{name}")
