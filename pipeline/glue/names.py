"""The names of the files that glue writes, for whoever plans or reads them. Imports no template library."""

from __future__ import annotations

from pathlib import Path

from pipeline.schema import has_kernel, has_ort_library, has_torch_library
from pipeline.spec import OpSpec

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))

SCHEMA = "schema.py"
PYTHON = (SCHEMA, "fake.py", "lowering.py")


def python(spec: OpSpec) -> tuple[str, ...]:
    """Return the generated Python files; torch has no part in an operator that exists in ONNX alone."""
    return PYTHON if spec.torch else (SCHEMA,)


def native(spec: OpSpec) -> tuple[str, ...]:
    """Return the generated C++ files, which the libraries are compiled from."""
    inline = ("kernel.h",) if spec.kernel is not None else ()
    kernel = (f"{spec.name}.h", "kernel.cc", "checks.h", "ort.cc", *inline) if has_kernel(spec) else ()
    torch = ("torch.cc",) if has_torch_library(spec) else ()
    return (*kernel, *torch, *(("ort_library.cc",) if has_ort_library(spec) else ()))


def torch_binding(spec: OpSpec) -> tuple[str, ...]:
    """Return those of them that the torch binding is made of, the arithmetic left out."""
    return ("checks.h", "torch.cc") if has_torch_library(spec) else ()


def generated(spec: OpSpec) -> tuple[str, ...]:
    """Return all of them."""
    return (*native(spec), *python(spec))
