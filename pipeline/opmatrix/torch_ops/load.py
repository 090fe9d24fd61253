"""Make an operator callable in this process: load its compiled library, or define it in Python.

The file ops/<name>/torch_op.py has an operator in Python, or the gradient of one. ``define()`` defines the operator,
without a gradient, and returns an object that keeps it alive. ``setup_context(ctx, inputs, output)`` and
``backward(ctx, *grads)`` are what torch.library.register_autograd takes; ``WITHOUT_GRADIENT`` names the inputs of a
floating dtype for which `backward` returns None on purpose. ``NOT_A_DERIVATIVE`` is the reason why `backward` gives
something else than the derivative on purpose; then reference.py has ``<name>_gradient``.
"""

from __future__ import annotations

import ctypes
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from opmatrix.basics.errors import RegisterError, did_you_mean, missing
from opmatrix.basics.files import line_in, load_module, sha256
from opmatrix.declaration.backward_operator import backward_of, without_gradient
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.cpu_levels import NO_LEVELS, LibraryLevels
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import (
    OWN_TORCH,
    callers_name,
    has_torch_library,
    is_classic,
    is_composed,
    is_own,
    stable_abi_since,
    torch_arguments,
    torch_operator_name,
    torch_qualified,
    torch_schema,
)
from opmatrix.spec import Attribute, OpSpec
from opmatrix.torch_ops import aten_overloads
from opmatrix.torch_ops.call import has_inferred_names, registered_overload, torch_identity, torch_minor
from opmatrix.torch_ops.transforms import formula, has_formula, register_gradient


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """The formula of an operator's gradient; with `operator`, one that calls this operator, and has a gradient only if
    that has one."""

    setup_context: Callable[..., Any]
    backward: Callable[..., Any]
    without: tuple[str, ...]
    not_a_derivative: str = ""
    operator: Operator | None = None
    is_derived_twice: bool = True

    def register(self, name: str, library: torch.library.Library | None = None) -> None:
        """Register it for the operator ``namespace::name``; with `library`, until that is deleted."""
        register_gradient(name, setup_context=self.setup_context, backward=self.backward, library=library)


def gradient(paths: Paths, spec: OpSpec) -> Gradient | None:
    """Return the formula, or None if there is none. Raises RegisterError for one function without the other."""
    path = paths.torch_op(spec.name)
    called = load_operator(paths, backward_of(spec)) if backward_of(spec) else None
    if not path.is_file():
        return _by_operator(paths, spec, called) if called else None
    module, shown = _load(path), _shown(path)
    functions: dict[str, Any] = {name: getattr(module, name, None) for name in ("setup_context", "backward")}
    if called:
        if found := [name for name in (*functions, "WITHOUT_GRADIENT") if hasattr(module, name)]:
            raise RegisterError(
                f"{shown}: {', '.join(found)}: ops/{spec.name}/spec.py names the operator {called.name!r} as backward. "
                "Remove one of both"
            )
        return replace(_by_operator(paths, spec, called), not_a_derivative=_reason(module, shown))
    if all(function is None for function in functions.values()):
        return None
    for name, function in functions.items():
        if not callable(function):
            raise RegisterError(f"{shown}: no function {name}(); a gradient takes setup_context() and backward()")
    without = tuple(getattr(module, "WITHOUT_GRADIENT", ()))
    names = [i.name for i in spec.inputs]
    for name in without:
        if name not in names:
            raise RegisterError(
                f"{shown}: WITHOUT_GRADIENT names {name!r}, allowed: {', '.join(names)}{did_you_mean(name, names)}"
            )
    return Gradient(**functions, without=without, not_a_derivative=_reason(module, shown))


def _reason(module: ModuleType, shown: str) -> str:
    reason: object = getattr(module, "NOT_A_DERIVATIVE", "")
    if not isinstance(reason, str) or (hasattr(module, "NOT_A_DERIVATIVE") and not reason.strip()):
        raise RegisterError(
            f'{shown}: NOT_A_DERIVATIVE is {reason!r}, expected: the reason, such as "straight-through: the derivative '
            'of rounding is 0"'
        )
    return reason


def _by_operator(paths: Paths, spec: OpSpec, called: Operator) -> Gradient:
    setup_context, backward = formula(spec, called.spec)
    return Gradient(
        setup_context=setup_context,
        backward=backward,
        without=without_gradient(spec, called.spec),
        operator=called,
        is_derived_twice=gradient(paths, called.spec) is not None,
    )


def define(paths: Paths, spec: OpSpec) -> Any:
    """Call ``define()``; return the object that keeps the operator alive. Raises RegisterError."""
    path = paths.torch_op(spec.name)
    shown = _shown(path)
    if not path.is_file():
        raise RegisterError(
            f"{shown}: missing; it has a function define(), as ops/{spec.name}/spec.py says python=True"
        )
    function = getattr(_load(path), "define", None)
    if not callable(function):
        raise RegisterError(f"{shown}: no function define(), which defines {spec.torch and spec.torch.name} in Python")
    try:
        return function()
    except Exception as error:  # a user's file may raise anything
        raise RegisterError(f"{_shown(path, error)}: define() raised {type(error).__name__}: {error}") from error


def _load(path: Path) -> ModuleType:
    try:
        return load_module(path, "torch_op")
    except Exception as error:  # as above
        raise RegisterError(f"{_shown(path, error)}: {type(error).__name__}: {error}") from error


def _shown(path: Path, error: Exception | None = None) -> str:
    """Return ``ops/name/torch_op.py``, with ``:12`` for the last line of it in the traceback of `error`."""
    line = error and line_in(path, error)
    return f"ops/{path.parent.name}/{path.name}" + (f":{line}" if line else "")


_TENSORS = ("Tensor", "Optional[Tensor]", "List[Tensor]")
_TAKEN_BY: Mapping[str, Collection[str]] = {"number": ("number", "float", "int")}  # ATen's Scalar takes all three


@dataclass(frozen=True, kw_only=True)
class LoadedLibrary:
    """An operator that this process can call."""

    overload: Any
    alive: Any  # keeps a definition in Python alive
    levels: LibraryLevels = NO_LEVELS


def load(paths: Paths, operator: Operator) -> LoadedLibrary:
    """Make the operator callable. Raises RegisterError, also for another schema than the declared one, and ExportError
    if this torch has none of the operators that it overrides."""
    spec = operator.spec
    if spec.torch is None:
        raise RegisterError(f"{spec.name} is declared without a torch operator: there is nothing to register")
    if spec.torch.overrides:
        problems = [
            f"{spec.name}: torch {torch.__version__} has {overload._schema}, declared: {torch_schema(spec)}: {what}. "
            f"Fix the declaration, or bound the override with first= and last= in ops/{spec.name}/spec.py"
            for overload in aten_overloads.overloads(spec)
            for what in _differences(spec, overload._schema)
        ]
        if problems:
            raise RegisterError("\n".join(problems))
        return LoadedLibrary(overload=registered_overload(spec), alive=None)
    if not spec.torch.python:
        _load_library(paths, operator)
        levels = LibraryLevels(library_path(paths, operator)) if spec.cpu_levels else NO_LEVELS
        return LoadedLibrary(overload=_check_schema(operator), alive=None, levels=levels)
    alive = define(paths, spec)
    overload = _check_schema(operator)
    if has_formula(torch_qualified(spec)):  # then the gradient check could not replace the kernel by the reference
        raise RegisterError(
            f"ops/{spec.name}/torch_op.py: define() registers a gradient of {spec.torch.name}, which nothing would "
            "hold against the reference. Make its functions setup_context() and backward() of the file itself, and "
            "leave the registration to opmatrix"
        )
    return LoadedLibrary(overload=overload, alive=alive)


def library_digest(paths: Paths, operator: Operator) -> list[dict[str, Any]]:
    """Return, as a result of register, the SHA-256 of the library that `load` loads; [] where there is none."""
    if not has_torch_library(operator.spec):
        return []
    return [{"library": sha256(library_path(paths, operator))}]


def library_path(paths: Paths, operator: Operator) -> Path:
    """Return the library that `load` loads."""
    return paths.torch_library(operator.name, torch=_one_torch(paths, operator))


def _one_torch(paths: Paths, operator: Operator) -> str | None:
    """Return the running torch where it has a library of its own."""
    spec, running = operator.spec, torch_minor()
    # A handwritten torch.cc fits only one version; for the environment that builds it, the path has no version.
    own = is_own(OWN_TORCH, spec, operator.handwritten_files)
    of_this_torch = paths.torch_library(spec.name, torch=running).is_file() if own else is_classic(spec, running)
    return running if of_this_torch else None


def _load_library(paths: Paths, operator: Operator) -> None:
    """Load the library for the running torch, or the one for many versions of torch.

    A library over torch's C++ headers fits one version alone: another may load it without the kernel.
    """
    spec, one = operator.spec, _one_torch(paths, operator)
    own, since = is_own(OWN_TORCH, spec, operator.handwritten_files), stable_abi_since(spec)
    for_torch = f" --torch-root {shlex.quote(sys.prefix)}" if one else ""
    compile_command = f"python -m opmatrix compile {spec.name}{for_torch}"
    path, version = paths.torch_library(spec.name, torch=one), paths.torch_version(spec.name, torch=one)
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
    schema = overload._schema
    agrees = bool(schema == wanted)
    if has_inferred_names(schema):  # then it has no defaults either: compare types, order and what is an alias
        kinds = [
            [[(str(a.type), a.alias_info is not None) for a in part] for part in (one.arguments, one.returns)]
            for one in (schema, wanted)
        ]
        agrees = kinds[0] == kinds[1]
    if not agrees:
        raise RegisterError(f"{operator.name}: {source} registers {schema}, declared: {wanted}. {remedy}")
    return overload


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


def _differences(spec: OpSpec, schema: Any) -> Iterator[str]:
    """Yield each difference of the schema of an operator of torch from the declaration."""
    declared = torch._C.parse_schema(torch_schema(spec))
    attributes = [a.name for a in torch_arguments(spec) if isinstance(a.source, Attribute)]
    kinds = {a.name: str(a.type) for a in declared.arguments}
    tensors = [str(a.type) for a in schema.arguments if str(a.type) in _TENSORS]
    wanted = [str(a.type) for a in declared.arguments if a.name not in attributes]
    if tensors != wanted:
        yield f"it takes {', '.join(tensors) or 'no tensors'}, not {', '.join(wanted)}"
    others = {a.name: a for a in schema.arguments if str(a.type) not in _TENSORS}
    for name in attributes:
        if name not in others:
            yield f"it has no argument {name!r}, but {', '.join(others) or 'none'}"
        elif kinds[name] not in _TAKEN_BY.get(kind := str(others[name].type), (kind,)):
            yield f"its argument {name!r} is of type {others[name].type}, not {kinds[name]}"
    for name, argument in others.items():
        if name not in attributes and not argument.has_default_value():
            yield f"its argument {name!r} has no default and is not declared"
    if len(schema.returns) != len(spec.outputs):
        yield f"it returns {len(schema.returns)} values, not {len(spec.outputs)}"
