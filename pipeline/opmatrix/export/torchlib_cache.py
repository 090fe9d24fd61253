"""Keep the dynamo exporter's registry of translations between exports.

`torch.onnx.export` builds it from the source of 500 functions of torchlib on every call: two thirds of the time of a
small export (torch 2.13: 0.35 of 0.55 s; torch 2.6: 1.6 of 2.1 s). It does not depend on the model. This module patches
private names of torch; without them exports are slower and otherwise the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.onnx._internal.exporter import _registration

_BUILD = "from_torchlib"
_CHOOSE = "_cleanup_registry_based_on_opset_version"


@functools.cache
def _all_opsets() -> Any:
    """Return the registry with the translations of all opsets."""
    cls = _registration.ONNXRegistry
    if not hasattr(cls, _CHOOSE):  # torch 2.6 has the translations of one opset alone, and converts the model
        return cls.from_torchlib()
    with mock.patch.object(cls, _CHOOSE, lambda self: None):
        return cls.from_torchlib()


def registry(opset_version: int = 18) -> Any:
    """Return a copy of the result of ``ONNXRegistry.from_torchlib``, since torch adds custom translations to it."""
    made = _registration.ONNXRegistry()
    made.functions = {target: list(found) for target, found in _all_opsets().functions.items()}
    if hasattr(made, _CHOOSE):
        made._opset_version = opset_version
        made._cleanup_registry_based_on_opset_version()
    return made


@contextmanager
def cached_registry() -> Iterator[None]:
    """Build the registry once for this process and its forks."""
    cls = getattr(_registration, "ONNXRegistry", None)
    if not hasattr(cls, _BUILD):
        yield
        return
    _all_opsets()
    with mock.patch.object(cls, _BUILD, staticmethod(registry)):
        yield
