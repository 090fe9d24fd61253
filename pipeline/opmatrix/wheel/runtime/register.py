"""Register the operators of a wheel in torch: their library, fake kernels and gradients. Needs torch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from opmatrix.basics.version import older
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.signature.signature import has_torch_library, stable_abi_since, torch_qualified
from opmatrix.spec import OpSpec
from opmatrix.torch_ops import aten_overloads, transforms
from opmatrix.torch_ops.transforms import formula
from opmatrix.wheel.runtime.operators import WheelOperator

OLDEST_TORCH = "2.9"

_alive: list[Any] = []  # keeps definitions in Python alive


def register(library: Path | None, operators: Sequence[WheelOperator]) -> dict[str, str]:
    """Register the operators that this torch supports; return the names of the others, each with the reason.

    Raises ImportError if torch is too old, or if one of the operators is registered already.
    """
    if older(torch.__version__, OLDEST_TORCH):
        names = ", ".join(shipped.spec.name for shipped in operators)
        raise ImportError(f"{names}: needs torch {OLDEST_TORCH} or newer, found {torch.__version__}")
    unavailable = {s.spec.name: why for s in operators if (why := _why_unavailable(s.spec))}
    served = [s for s in operators if s.spec.torch and not s.spec.torch.overrides and s.spec.name not in unavailable]
    if taken := _registered(s.spec for s in served):
        raise ImportError(
            f"{', '.join(taken)}: registered already, by another library that this process has loaded. Load one of them"
        )
    if library:
        _load(library, [s.spec for s in served if has_torch_library(s.spec)])
    by_name = {shipped.spec.name: shipped.spec for shipped in operators}
    for shipped in served:
        _complete(shipped, by_name.get(backward_of(shipped.spec)))
    return unavailable


def _why_unavailable(spec: OpSpec) -> str | None:
    if spec.torch is None:
        return "exists in ONNX alone"
    if older(torch.__version__, stable_abi_since(spec)):
        return f"needs torch {stable_abi_since(spec)} or newer, found {torch.__version__}"
    return None


def _load(library: Path, specs: Sequence[OpSpec]) -> None:
    try:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]  # torch has no types for it
    except OSError as error:
        raise ImportError(f"{library} does not load in torch {torch.__version__}: {error}") from error
    found = _registered(specs)
    if lost := [name for spec in specs if (name := torch_qualified(spec)) not in found]:
        error_text = ctypes.CDLL(str(library)).opmatrix_error
        error_text.restype = ctypes.c_char_p
        raise ImportError(f"{library} did not register {', '.join(lost)}: {error_text().decode()}")


def _complete(shipped: WheelOperator, backward: OpSpec | None) -> None:
    """Register the parts that no compiled library has: the definition in Python, the fake kernel, the gradient,
    the rules for vmap and autocast."""
    spec = shipped.spec
    assert spec.torch is not None
    torch_op = shipped.module("torch_op") if "torch_op" in shipped.modules else None
    if spec.torch.python and torch_op:
        _alive.append(torch_op.define())
    else:
        shipped.module("fake").register_fake()
    if torch_op and hasattr(torch_op, "backward"):
        transforms.register_gradient(
            torch_qualified(spec), setup_context=torch_op.setup_context, backward=torch_op.backward
        )
    if backward:
        setup_context, derive = formula(spec, backward)
        transforms.register_gradient(torch_qualified(spec), setup_context=setup_context, backward=derive)
    transforms.register_missing_gradient(spec)
    transforms.register_rules(spec)


def _registered(specs: Iterable[OpSpec]) -> list[str]:
    """Return the torch names of the operators that are registered."""
    names = []
    for name in [torch_qualified(spec) for spec in specs if spec.torch]:
        with suppress(AttributeError):
            aten_overloads.registered_operator(name)
            names.append(name)
    return names
