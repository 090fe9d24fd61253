"""Link one ONNX Runtime library of several operators, of the objects that their own compile steps have left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_ORT, has_kernel, is_own
from opmatrix.errors import CompileError, missing
from opmatrix.project.paths import Paths
from opmatrix.toolchain.link_operators import link
from opmatrix.toolchain.ninja_file import OBJECTS


def run(layout: Paths, operators: Sequence[Operator]) -> Path:
    """Bring the library up to date and return its path. Raises CompileError.

    The objects are taken as they are: who wants them to follow an edit lets the compile steps run first.
    """
    names = [o.name for o in operators]
    for operator in operators:
        _check(layout, operator)
    path = layout.combined_library(names)
    link(layout, [o.spec for o in operators], {"ort": path})
    return path


def _check(layout: Paths, operator: Operator) -> None:
    """Raise CompileError for an operator that gives no objects of its own, or none yet."""
    name = operator.name
    if not has_kernel(operator.spec):
        why = f"it uses {', '.join(operator.spec.uses)}; link those" if operator.spec.uses else "its kernel is " \
            "ONNX Runtime's own"  # fmt: skip
        raise CompileError(f"{name} has no objects: {why}")
    if is_own(OWN_ORT, operator.spec, operator.handwritten_files):
        raise CompileError(f"native/{name}/ort.cc has a RegisterCustomOps of its own, and a library has one; write "
                           f"native/{name}/kernel.h instead, or load its own library beside this one")  # fmt: skip
    if lost := next((p for p in layout.objects(name, *OBJECTS) if not p.is_file()), None):
        raise CompileError(missing(lost, run=f"doit compile:{name}"))
