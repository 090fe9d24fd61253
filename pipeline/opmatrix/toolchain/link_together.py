"""Link one ONNX Runtime library of several operators from the objects of their compile steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opmatrix.basics.errors import CompileError, missing
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import OWN_ORT, has_kernel, is_own
from opmatrix.toolchain.link import link
from opmatrix.toolchain.ninja_file import OBJECTS


def run(paths: Paths, operators: Sequence[Operator]) -> Path:
    """Bring the library up to date with the objects of compile steps; return its path. Raises CompileError."""
    for operator in operators:
        name, uses = operator.name, operator.spec.uses
        if not has_kernel(operator.spec):
            why = f"it uses {', '.join(uses)}; link those" if uses else "its kernel is ONNX Runtime's own"
            raise CompileError(f"{name} has no objects: {why}")
        if is_own(OWN_ORT, operator.spec, operator.handwritten_files):
            raise CompileError(f"native/{name}/ort.cc has a RegisterCustomOps of its own, and a library has one; write "
                               f"native/{name}/kernel.h instead, or load its own library as well")  # fmt: skip
        if lost := next((p for p in paths.objects(name, *OBJECTS) if not p.is_file()), None):
            raise CompileError(missing(lost, run=f"doit compile:{name}"))
    path = paths.combined_library([o.name for o in operators])
    link(paths, [o.spec for o in operators], {"ort": path})
    return path
