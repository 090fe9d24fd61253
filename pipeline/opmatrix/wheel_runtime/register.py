"""Give torch the operators of a wheel: its library, its fake kernels, its gradients. Needs torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from opmatrix.declaration.torch_signature import has_torch_library, stable_abi_since
from opmatrix.spec import OpSpec
from opmatrix.version import older
from opmatrix.wheel_runtime.operators import Shipped

OLDEST_TORCH = "2.9"

_alive: list[Any] = []  # what definitions in Python live by


def register(library: Path | None, operators: Sequence[Shipped]) -> dict[str, str]:
    """Register what this torch can serve; return the others, each with the reason.

    Raises ImportError where torch is too old, and where one of the operators is registered already.
    """
    if older(torch.__version__, OLDEST_TORCH):
        raise ImportError(f"{_names(operators)}: needs torch {OLDEST_TORCH} or newer, found {torch.__version__}")
    unavailable = {s.spec.name: why for s in operators if (why := _why_not(s.spec))}
    served = [s for s in operators if s.spec.torch and not s.spec.torch.overrides and s.spec.name not in unavailable]
    if taken := [s.spec.torch.name for s in served if s.spec.torch and _is_registered(s.spec.torch.name)]:
        raise ImportError(
            f"{', '.join(taken)}: registered already, by another library that this process has loaded. Load one of them"
        )
    if library:
        _load(library, [s.spec for s in served if has_torch_library(s.spec)])
    for shipped in served:
        _complete(shipped)
    return unavailable


def _why_not(spec: OpSpec) -> str | None:
    if spec.torch is None:
        return "exists in ONNX alone"
    if older(torch.__version__, stable_abi_since(spec)):
        return f"needs torch {stable_abi_since(spec)} or newer, found {torch.__version__}"
    return None


def _load(library: Path, specs: Sequence[OpSpec]) -> None:
    try:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ImportError(f"{library} does not load in torch {torch.__version__}: {error}") from error
    lost = [spec.torch.name for spec in specs if spec.torch and not _is_registered(spec.torch.name)]
    if lost:
        said = ctypes.CDLL(str(library)).opmatrix_error
        said.restype = ctypes.c_char_p
        raise ImportError(f"{library} did not register {', '.join(lost)}: {said().decode()}")


def _complete(shipped: Shipped) -> None:
    """Add what a compiled library does not have: the definition in Python, the fake kernel, the gradient."""
    spec = shipped.spec
    assert spec.torch is not None
    written = shipped.module("torch_op") if "torch_op" in shipped.modules else None
    if spec.torch.python and written:
        _alive.append(written.define())
    else:
        shipped.module("fake").register_fake()
    if written and hasattr(written, "backward"):
        torch.library.register_autograd(spec.torch.name, written.backward, setup_context=written.setup_context)


def _is_registered(name: str) -> bool:
    namespace, _, function = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), function)


def _names(operators: Sequence[Shipped]) -> str:
    return ", ".join(shipped.spec.name for shipped in operators)
