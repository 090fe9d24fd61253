"""The names of the files that glue writes, for whoever plans or reads them. Imports no template library."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))

PYTHON = ("schema.py", "fake.py", "symbolic.py", "translation.py")


def native(operator: str) -> tuple[str, ...]:
    """Return the generated C++ files, which the libraries are compiled from."""
    return (f"{operator}.h", "kernel.cc", "checks.h", "torch.cc", "ort.cc", "ort_library.cc")


def torch_binding() -> tuple[str, ...]:
    """Return those of them that the torch binding is made of, the arithmetic left out."""
    return ("checks.h", "torch.cc")


def generated(operator: str) -> tuple[str, ...]:
    """Return all of them."""
    return (*native(operator), *PYTHON)
