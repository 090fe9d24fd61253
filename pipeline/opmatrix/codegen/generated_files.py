"""The names of the files that codegen writes, for steps and readers. Imports no template library."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from opmatrix.signature import signature
from opmatrix.spec import OpSpec

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))

SCHEMA = "schema.py"
PYTHON = (SCHEMA, "fake.py", "lowering.py")


def python_files(spec: OpSpec) -> tuple[str, ...]:
    """Return the generated Python files; an operator that exists only in ONNX has none for torch."""
    return PYTHON if spec.torch else (SCHEMA,)


def cpp_files(spec: OpSpec, written: Set[str]) -> tuple[str, ...]:
    """Return the generated C++ files; the libraries are compiled from these and those that are `written` by hand."""
    inline = ("kernel.h",) if spec.kernel is not None else ()
    kernel = ("compute.h", "kernel.cc", "checks.h", *inline) if signature.has_kernel_object(spec, written) else ()
    own_ort, own_torch = (signature.is_own(own, spec, written) for own in (signature.OWN_ORT, signature.OWN_TORCH))
    if kernel and (own_ort or own_torch):
        kernel = (*kernel, f"{spec.name}.h")  # for them: what it was before `compute.h`
    ort = ("ort.cc",) if signature.has_kernel(spec) and not own_ort else ()
    torch = ("torch.cc",) if signature.has_torch_library(spec) and not own_torch else ()
    return (*kernel, *ort, *torch, *(("ort_library.cc",) if signature.has_ort_library(spec) and not own_ort else ()))


def generated(spec: OpSpec, written: Set[str]) -> tuple[str, ...]:
    """Return all generated files."""
    return (*cpp_files(spec, written), *python_files(spec))
