"""The file ops/<name>/torch_op.py: an operator defined in Python, or the gradient of one.

``define()`` defines the operator, without a gradient, and returns an object that keeps it alive. ``setup_context(ctx,
inputs, output)`` and ``backward(ctx, *grads)`` are what torch.library.register_autograd takes; ``WITHOUT_GRADIENT``
names the inputs of a floating dtype for which `backward` returns None on purpose. ``NOT_A_DERIVATIVE`` is the reason
why `backward` gives something else than the derivative on purpose; then reference.py has ``<name>_gradient``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from opmatrix.declaration.backward_operator import backward_of, without_gradient
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.declaration.torch_signature import torch_qualified
from opmatrix.errors import RegisterError, did_you_mean
from opmatrix.files import line_in, load_module
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.torch_library.backward_formula import formula
from opmatrix.torch_library.transforms import has_formula, register_gradient


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


def gradient(layout: Paths, spec: OpSpec) -> Gradient | None:
    """Return the formula, or None if there is none. Raises RegisterError for one function without the other."""
    path = layout.torch_op(spec.name)
    called = load_operator(layout, backward_of(spec)) if backward_of(spec) else None
    if not path.is_file():
        return _by_operator(layout, spec, called) if called else None
    module, shown = _load(path), _shown(path)
    functions: dict[str, Any] = {name: getattr(module, name, None) for name in ("setup_context", "backward")}
    if called:
        if found := [name for name in (*functions, "WITHOUT_GRADIENT") if hasattr(module, name)]:
            raise RegisterError(
                f"{shown}: {', '.join(found)}: ops/{spec.name}/spec.py names the operator {called.name!r} as backward. "
                "Remove one of both"
            )
        return replace(_by_operator(layout, spec, called), not_a_derivative=_reason(module, shown))
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


def _by_operator(layout: Paths, spec: OpSpec, called: Operator) -> Gradient:
    setup_context, backward = formula(spec, called.spec)
    without = without_gradient(spec, called.spec)
    return Gradient(
        setup_context=setup_context,
        backward=backward,
        without=without,
        operator=called,
        is_derived_twice=gradient(layout, called.spec) is not None,
    )


def define(layout: Paths, spec: OpSpec) -> Any:
    """Call ``define()``; return the object that keeps the operator alive. Raises RegisterError."""
    path = layout.torch_op(spec.name)
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


def check_formula(spec: OpSpec) -> None:
    """Raise RegisterError if define() registered a gradient: the gradient check could not replace the operator's kernel
    by the reference."""
    assert spec.torch is not None
    if has_formula(torch_qualified(spec)):
        raise RegisterError(
            f"ops/{spec.name}/torch_op.py: define() registers a gradient of {spec.torch.name}, which nothing would "
            "hold against the reference. Make its functions setup_context() and backward() of the file itself, and "
            "leave the registration to opmatrix"
        )


def _load(path: Path) -> ModuleType:
    try:
        return load_module(path, "torch_op")
    except Exception as error:  # as above
        raise RegisterError(f"{_shown(path, error)}: {type(error).__name__}: {error}") from error


def _shown(path: Path, error: Exception | None = None) -> str:
    """Return ``ops/name/torch_op.py``, with ``:12`` for the last line of it in the traceback of `error`."""
    line = error and line_in(path, error)
    return f"ops/{path.parent.name}/{path.name}" + (f":{line}" if line else "")
