"""Make an operator callable in this process: load its compiled library, or define it in Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.errors import RegisterError
from pipeline.layout import Layout
from pipeline.library import overridden, torch_op
from pipeline.library.torch_call import torch_operator
from pipeline.load import Operator
from pipeline.schema import torch_schema


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An operator that this process can call."""

    overload: Any
    alive: Any  # what a definition in Python lives by


def load(layout: Layout, operator: Operator) -> Loaded:
    """Make the operator callable; its schema is the declared one. Raises RegisterError."""
    spec = operator.spec
    if spec.torch is None:
        raise RegisterError(f"{spec.name} is declared without a torch operator: there is nothing to register")
    if spec.torch.overrides:
        overridden.check(spec)
        return Loaded(overload=torch_operator(spec).default, alive=None)
    alive = None
    if spec.torch.python:
        alive = torch_op.define(layout, spec)
    else:
        _load_library(layout, operator)
    return Loaded(overload=_check_schema(operator), alive=alive)


def _load_library(layout: Layout, operator: Operator) -> None:
    path = layout.torch_library(operator.name)
    if not path.is_file():
        raise RegisterError(f"{path} is missing. Build it with: python -m pipeline compile {operator.name}")
    try:
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise RegisterError(f"{path} does not load in torch {torch.__version__}: {error}. Compile it anew") from error
    _check_registered(str(path))


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
    if overload._schema != wanted:
        raise RegisterError(
            f"{operator.name}: {_source(operator)} registers {overload._schema}, declared: {wanted}. "
            f"{_remedy(operator)}"
        )
    return overload


def _source(operator: Operator) -> str:
    return "define() in its torch_op.py" if operator.spec.torch and operator.spec.torch.python else "its library"


def _remedy(operator: Operator) -> str:
    if operator.spec.torch and operator.spec.torch.python:
        return f"Mend ops/{operator.name}/torch_op.py or spec.py: names, order, types and defaults must be the same"
    return (
        f"Was another library compiled, or does a torch.cc of its own say otherwise? "
        f"Compile it anew with: python -m pipeline compile {operator.name}"
    )
