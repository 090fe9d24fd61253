"""Make an operator callable in this process: load its compiled library, or define it in Python."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import torch

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_TORCH, is_classic, is_own, stable_abi_since, torch_schema
from opmatrix.errors import RegisterError, missing
from opmatrix.project.paths import Paths
from opmatrix.torch_library import aten_overrides, user_python
from opmatrix.torch_library.call import inferred, torch_identity, torch_minor, torch_operator


@dataclass(frozen=True, kw_only=True)
class LoadedLibrary:
    """An operator that this process can call."""

    overload: Any
    alive: Any  # what a definition in Python lives by


def load(layout: Paths, operator: Operator) -> LoadedLibrary:
    """Make the operator callable; its schema is the declared one. Raises RegisterError."""
    spec = operator.spec
    if spec.torch is None:
        raise RegisterError(f"{spec.name} is declared without a torch operator: there is nothing to register")
    if spec.torch.overrides:
        aten_overrides.check(spec)
        return LoadedLibrary(overload=torch_operator(spec).default, alive=None)
    if not spec.torch.python:
        _load_library(layout, operator)
        return LoadedLibrary(overload=_check_schema(operator), alive=None)
    alive = user_python.define(layout, spec)
    overload = _check_schema(operator)
    user_python.check_formula(spec)
    return LoadedLibrary(overload=overload, alive=alive)


def _load_library(layout: Paths, operator: Operator) -> None:
    own = is_own(OWN_TORCH, operator.spec, operator.handwritten_files)
    one = _one_torch(layout, operator, own=own)
    path = layout.torch_library(operator.name, torch=one)
    if not path.is_file():
        since = stable_abi_since(operator.spec)
        which = f"; torch {one} has one of its own, since that for many serves {since} and newer" if one else ""
        raise RegisterError(missing(path, run=_compile(operator, one), problem=f"is missing{which}"))
    if own or one:
        _check_version(layout, operator, one)
    try:
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise RegisterError(
            f"{path} does not load in torch {torch.__version__}: {error}. It fits {_fits(layout, operator, one, own)}. "
            f"Compile it anew with: {_compile(operator, one)}"
        ) from error
    if not own:
        _check_registered(str(path))


def _one_torch(layout: Paths, operator: Operator, *, own: bool) -> str | None:
    """Return the running torch where it has a library for itself, or None for the one that serves many.

    A torch.cc by hand always fits one version alone; that of the environment that builds it is the one further up.
    """
    minor = torch_minor()
    if own:
        return minor if layout.torch_library(operator.name, torch=minor).is_file() else None
    return minor if is_classic(operator.spec, minor) else None


def _check_version(layout: Paths, operator: Operator, one: str | None) -> None:
    """Raise RegisterError where a library over torch's C++ headers was compiled for another torch: one that is 2 minor
    versions off may load, with its kernel missing."""
    made_for, running = _made_for(layout, operator, one), torch_identity()
    if made_for != running:
        raise RegisterError(
            f"{layout.torch_library(operator.name, torch=one)} is compiled for torch {made_for}, and this is "
            f"{running}; a library over torch's C++ headers fits one version alone. Compile it anew with: "
            f"{_compile(operator, one)}"
        )


def _made_for(layout: Paths, operator: Operator, one: str | None) -> str:
    path = layout.torch_version(operator.name, torch=one)
    return path.read_text().strip() if path.is_file() else "an unknown version"


def _fits(layout: Paths, operator: Operator, one: str | None, own: bool) -> str:
    """Return which versions of torch a library fits."""
    if own or one:
        return f"torch {_made_for(layout, operator, one)} alone"
    return f"torch {stable_abi_since(operator.spec)} and newer"


def _compile(operator: Operator, one: str | None) -> str:
    """Return the command that compiles the library."""
    return f"python -m opmatrix compile {operator.name}" + ("" if one is None else f" --torch-root {sys.prefix}")


def _check_registered(path: str) -> None:
    """Raise what the library itself says about a registration that failed: it must not throw while it is loaded."""
    error = getattr(ctypes.CDLL(path), "opmatrix_error", None)
    if error is None:
        return
    error.restype = ctypes.c_char_p
    if text := error().decode():
        raise RegisterError(f"{path} did not register its operator: {text}")


def _check_schema(operator: Operator) -> Any:
    wanted = torch._C.parse_schema(torch_schema(operator.spec))
    try:
        overload = torch_operator(operator.spec).default
    except AttributeError as error:
        raise RegisterError(
            f"{operator.name}: {_source(operator)} registers no {wanted.name}. {_remedy(operator)}"
        ) from error
    if not _same(overload._schema, wanted):
        raise RegisterError(
            f"{operator.name}: {_source(operator)} registers {overload._schema}, declared: {wanted}. "
            f"{_remedy(operator)}"
        )
    return overload


def _same(found: Any, wanted: Any) -> bool:
    """Return whether a schema is the declared one. Where torch made up the names of arguments, it knows no defaults
    either, and types and order decide."""
    if not inferred(found):
        return bool(found == wanted)
    return [_kinds(part) for part in (found.arguments, found.returns)] == [
        _kinds(part) for part in (wanted.arguments, wanted.returns)
    ]


def _kinds(arguments: Any) -> list[tuple[str, bool]]:
    """Return the type of each argument or result, and whether it says that it is an alias of another."""
    return [(str(a.type), a.alias_info is not None) for a in arguments]


def _source(operator: Operator) -> str:
    if is_own(OWN_TORCH, operator.spec, operator.handwritten_files):
        return "its torch.cc"
    return "define() in its torch_op.py" if operator.spec.torch and operator.spec.torch.python else "its library"


def _remedy(operator: Operator) -> str:
    if operator.spec.torch and operator.spec.torch.python:
        return f"Mend ops/{operator.name}/torch_op.py or spec.py: names, order, types and defaults must be the same"
    if is_own(OWN_TORCH, operator.spec, operator.handwritten_files):
        return (
            f"Mend native/{operator.name}/torch.cc or ops/{operator.name}/spec.py: names, order, types and defaults "
            f"must be the same; order and types alone, where torch.cc gives a function and no schema"
        )
    return f"Was another library compiled? Compile it anew with: python -m opmatrix compile {operator.name}"
