"""Make an operator callable in this process: load its compiled library, or define it in Python. `register` and `check`
use it."""

from __future__ import annotations

import ctypes
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opmatrix.cpu_levels import NO_LEVELS, LibraryLevels
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import (
    OWN_TORCH,
    callers_name,
    has_torch_library,
    is_classic,
    is_composed,
    is_own,
    stable_abi_since,
    torch_arguments,
    torch_operator_name,
    torch_schema,
)
from opmatrix.errors import RegisterError, missing
from opmatrix.files import sha256
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, OpSpec
from opmatrix.torch_library import aten_overloads, user_python
from opmatrix.torch_library.call import has_inferred_names, registered_overload, torch_identity, torch_minor

_TENSORS = ("Tensor", "Optional[Tensor]", "List[Tensor]")
_TAKEN_BY: Mapping[str, Collection[str]] = {"number": ("number", "float", "int")}  # ATen's Scalar takes all three


@dataclass(frozen=True, kw_only=True)
class LoadedLibrary:
    """An operator that this process can call."""

    overload: Any
    alive: Any  # keeps a definition in Python alive
    levels: LibraryLevels = NO_LEVELS


def load(layout: Paths, operator: Operator) -> LoadedLibrary:
    """Make the operator callable. Raises RegisterError, also for another schema than the declared one."""
    spec = operator.spec
    if spec.torch is None:
        raise RegisterError(f"{spec.name} is declared without a torch operator: there is nothing to register")
    if spec.torch.overrides:
        _check_overrides(spec)
        return LoadedLibrary(overload=registered_overload(spec), alive=None)
    if not spec.torch.python:
        _load_library(layout, operator)
        levels = LibraryLevels(library_path(layout, operator)) if spec.cpu_levels else NO_LEVELS
        return LoadedLibrary(overload=_check_schema(operator), alive=None, levels=levels)
    alive = user_python.define(layout, spec)
    overload = _check_schema(operator)
    user_python.check_formula(spec)
    return LoadedLibrary(overload=overload, alive=alive)


def library_digest(layout: Paths, operator: Operator) -> list[dict[str, Any]]:
    """Return, as a result of register, the SHA-256 of the library that `load` loads; [] where there is none."""
    if not has_torch_library(operator.spec):
        return []
    return [{"library": sha256(library_path(layout, operator))}]


def library_path(layout: Paths, operator: Operator) -> Path:
    """Return the library that `load` loads."""
    return layout.torch_library(operator.name, torch=_one_torch(layout, operator))


def _one_torch(layout: Paths, operator: Operator) -> str | None:
    """Return the running torch where it has a library of its own."""
    spec, running = operator.spec, torch_minor()
    # A handwritten torch.cc fits only one version; for the environment that builds it, the path has no version.
    own = is_own(OWN_TORCH, spec, operator.handwritten_files)
    of_this_torch = layout.torch_library(spec.name, torch=running).is_file() if own else is_classic(spec, running)
    return running if of_this_torch else None


def _load_library(layout: Paths, operator: Operator) -> None:
    """Load the library for the running torch, or the one for many versions of torch.

    A library over torch's C++ headers fits one version alone: another may load it without the kernel.
    """
    spec, one = operator.spec, _one_torch(layout, operator)
    own, since = is_own(OWN_TORCH, spec, operator.handwritten_files), stable_abi_since(spec)
    for_torch = f" --torch-root {shlex.quote(sys.prefix)}" if one else ""
    compile_command = f"python -m opmatrix compile {spec.name}{for_torch}"
    path, version = layout.torch_library(spec.name, torch=one), layout.torch_version(spec.name, torch=one)
    if not path.is_file():
        which = f"; torch {one} has one of its own, since that for many serves {since} and newer" if one else ""
        raise RegisterError(missing(path, run=compile_command, problem=f"is missing{which}"))
    fits = f"torch {since} and newer"
    if own or one:
        compiled_for = version.read_text(encoding="utf-8").strip() if version.is_file() else "an unknown version"
        if compiled_for != torch_identity():
            raise RegisterError(
                f"{path} is compiled for torch {compiled_for}, and this is {torch_identity()}; a library over torch's "
                f"C++ headers fits one version alone. Compile it again with: {compile_command}"
            )
        fits = f"torch {compiled_for} alone"
    try:
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]  # torch has no annotations there
    except OSError as error:
        raise RegisterError(
            f"{path} does not load in torch {torch.__version__}: {error}. It fits {fits}. "
            f"Compile it again with: {compile_command}"
        ) from error
    if spec.torch and spec.torch.schema:  # torch keeps the overloads that it found when the operator was first named
        namespace, _, name = torch_operator_name(spec).partition("::")
        vars(getattr(torch.ops, namespace)).pop(name, None)
    # The library does not throw while it is loaded: it keeps the message of a failed registration.
    if not own and (error_text := getattr(ctypes.CDLL(str(path)), "opmatrix_error", None)):
        error_text.restype = ctypes.c_char_p
        if text := error_text().decode():
            raise RegisterError(f"{path} did not register its operator: {text}")


def _check_schema(operator: Operator) -> Any:
    wanted = torch._C.parse_schema(torch_schema(operator.spec))
    source, remedy = _source_and_remedy(operator)
    try:
        overload = registered_overload(operator.spec)
    except AttributeError as error:
        raise RegisterError(f"{operator.name}: {source} registers no {wanted.name}. {remedy}") from error
    if not _same(overload._schema, wanted):
        raise RegisterError(f"{operator.name}: {source} registers {overload._schema}, declared: {wanted}. {remedy}")
    return overload


def _same(found: Any, wanted: Any) -> bool:
    """Return whether a schema is the declared one. One with names that torch inferred has no defaults either: compare
    types, order and whether a result is an alias."""
    if not has_inferred_names(found):
        return bool(found == wanted)
    kinds = [
        [[(str(a.type), a.alias_info is not None) for a in part] for part in (schema.arguments, schema.returns)]
        for schema in (found, wanted)
    ]
    return kinds[0] == kinds[1]


def _source_and_remedy(operator: Operator) -> tuple[str, str]:
    """Return the file that registers the operator, and how to fix a wrong schema."""
    name, same = operator.name, "names, order, types and defaults must be the same"
    if operator.spec.torch and operator.spec.torch.python:
        return "define() in its torch_op.py", f"Fix ops/{name}/torch_op.py or spec.py: {same}"
    if is_own(OWN_TORCH, operator.spec, operator.handwritten_files):
        remedy = f"Fix native/{name}/torch.cc or ops/{name}/spec.py: {same}"
        if is_composed(operator.spec):
            remedy = (
                f"Register {torch_schema(operator.spec)} there: fake.py defines {callers_name(operator.spec)}, by it"
            )
            return "its torch.cc", remedy
        return "its torch.cc", f"{remedy}; order and types alone, where torch.cc gives a function and no schema"
    return "its library", f"Was another library compiled? Compile it again with: python -m opmatrix compile {name}"


def _check_overrides(spec: OpSpec) -> None:
    """Raise RegisterError for each difference of torch's operators from the declaration, ExportError if it has none."""
    problems = [
        f"{spec.name}: torch {torch.__version__} has {overload._schema}, declared: {torch_schema(spec)}: {what}. "
        f"Fix the declaration, or bound the override with first= and last= in ops/{spec.name}/spec.py"
        for overload in aten_overloads.overloads(spec)
        for what in _differences(spec, overload._schema)
    ]
    if problems:
        raise RegisterError("\n".join(problems))


def _differences(spec: OpSpec, found: Any) -> Iterator[str]:
    declared = torch._C.parse_schema(torch_schema(spec))
    attributes = [a.name for a in torch_arguments(spec) if isinstance(a.source, Attribute)]
    kinds = {a.name: str(a.type) for a in declared.arguments}
    tensors = [str(a.type) for a in found.arguments if str(a.type) in _TENSORS]
    wanted = [str(a.type) for a in declared.arguments if a.name not in attributes]
    if tensors != wanted:
        yield f"it takes {', '.join(tensors) or 'no tensors'}, not {', '.join(wanted)}"
    others = {a.name: a for a in found.arguments if str(a.type) not in _TENSORS}
    for name in attributes:
        if name not in others:
            yield f"it has no argument {name!r}, but {', '.join(others) or 'none'}"
        elif kinds[name] not in _TAKEN_BY.get(kind := str(others[name].type), (kind,)):
            yield f"its argument {name!r} is of type {others[name].type}, not {kinds[name]}"
    for name, argument in others.items():
        if name not in attributes and not argument.has_default_value():
            yield f"its argument {name!r} has no default and is not declared"
    if len(found.returns) != len(spec.outputs):
        yield f"it returns {len(found.returns)} values, not {len(spec.outputs)}"
